"""Six schemes with a second copy of a worker, from one that processes and sends everything to one that is absent.

After the adaptive fault tolerance of StreamMine3G (section III). Here is what a user says; which switches a scheme
sets, and how long its recovery takes, is in ``afspark.control``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from afspark.policies import parameters
from afspark.policies.barriers import DEFAULT_INTERVAL, BarrierTolerance


@dataclass(frozen=True)
class Replicated(BarrierTolerance):
    """Base of the six schemes: a worker's primary, and a secondary on another host.

    Barriers are the moments of checkpoints. Recovery is precise: what came since the last checkpoint is replayed, and
    nothing is lost. With ``gap=True`` it is not replayed: the worker goes on from the checkpoint, or as its secondary
    was. The ledger has the gap, and no error is promised for it; where nothing came in between, nothing is lost.

    >>> HotStandby(interval=0.5).exact, HotStandby(gap=True).exact
    (True, False)
    """

    gap: bool = field(default=False, kw_only=True)

    recovers_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        parameters.choice("gap", self.gap)

    @property
    def exact(self) -> bool:
        return not self.gap

    @property
    def leaves_gap(self) -> bool:
        return self.gap

    def promise(self, alpha: float | None = None) -> float | None:
        return None if self.gap else 0.0

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"gap": self.gap}


@dataclass(frozen=True)
class Followed(Replicated):
    """Base of the two schemes whose secondaries process everything, so that none of them needs a checkpoint.

    Only one in ``store_every`` is made while the secondary is there. If both copies are lost, there is more to replay.

    >>> ActiveStandby(interval=0.5).rarely.barrier_seconds, HotStandby(interval=0.5).rarely.barrier_seconds
    (4.0, 0.5)
    """

    store_every: int = field(default=8, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        meaning = "It says that one in so many checkpoints is made while the secondary has all of the state."
        object.__setattr__(self, "store_every", parameters.count("store_every", self.store_every, meaning))

    @property
    def rarely(self) -> Followed:
        apart: dict[str, Any] = {name: _at_most(value * self.store_every) for name, value in self._distances().items()}
        return replace(self, store_every=1, **apart)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"store_every": self.store_every}


@dataclass(frozen=True)
class ActiveReplication(Followed):
    """The secondary receives, processes and sends at the same time as the primary.

    Sending means that its output of every batch is at hand: of the two outputs of a batch one is taken, the primary's
    as long as that one answers. What both have made is compared.
    """

    name: ClassVar[str] = "active-replication"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy processes every item at the same time, and has its output at hand"


@dataclass(frozen=True)
class ActiveStandby(Followed):
    """The secondary receives and processes, but does not send before the primary fails."""

    name: ClassVar[str] = "active-standby"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy processes every item, and sends once the first has failed"


@dataclass(frozen=True)
class HotStandby(Replicated):
    """The secondary sleeps: items queue up in front of it, and checkpoints in its memory make them superfluous."""

    name: ClassVar[str] = "hot-standby"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy has the last checkpoint in memory, and all items since"


@dataclass(frozen=True)
class ColdStandby(Replicated):
    """The secondary has the last checkpoint in memory, and receives nothing before the primary fails."""

    name: ClassVar[str] = "cold-standby"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy has the last checkpoint in memory"


@dataclass(frozen=True)
class Deployed(Replicated):
    """The secondary is loaded, with its static data; its state is in the store."""

    name: ClassVar[str] = "deployed"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy is loaded, and its state in the store"


@dataclass(frozen=True)
class PassiveReplication(Replicated):
    """There is no secondary: one is deployed after a failure, and reads the last checkpoint from the store."""

    name: ClassVar[str] = "passive-replication"
    reason: ClassVar[str] = "the last checkpoint is in the store"


def _at_most(distance: float) -> float:
    """A distance that is still a number which can be given."""
    return min(distance, parameters.LARGEST_COUNT if isinstance(distance, int) else sys.float_info.max)


SCHEMES: tuple[type[Replicated], ...] = (
    ActiveReplication,
    ActiveStandby,
    HotStandby,
    ColdStandby,
    Deployed,
    PassiveReplication,
)
"""Those that need the fewest steps after a failure first."""


def scheme_of(name: str, interval: float | None, *, gap: bool = False) -> Replicated:
    """The scheme of that name with a checkpoint every ``interval`` seconds; KeyError if there is none.

    Where secondaries process everything, they are so far apart while those follow. Without one they are no further
    apart than usual: another failure would leave all since the last one to replay.

    >>> scheme_of("active-standby", 64.0).barrier_seconds, scheme_of("active-standby", 64.0).rarely.barrier_seconds
    (1.0, 64.0)
    """
    found = {scheme.name: scheme for scheme in SCHEMES}[name]
    if issubclass(found, Followed):
        often = min(interval or DEFAULT_INTERVAL, DEFAULT_INTERVAL)
        return found(interval=often, gap=gap, store_every=max(round((interval or often) / often), 1))
    return found(interval=interval, gap=gap)
