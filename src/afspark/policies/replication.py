"""Six schemes with a second copy of a worker, from one that processes and sends everything to one that is absent.

After the adaptive fault tolerance of StreamMine3G (section III). Here is what a user says; which switches a scheme
sets, and how long its recovery takes, is in ``afspark.control``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from afspark.bounds.thresholds import Place
from afspark.policies import parameters
from afspark.policies.barriers import BarrierTolerance
from afspark.policies.plans import BackupNeed, BackupPlan, ThresholdBackup


@dataclass(frozen=True)
class Replicated(BarrierTolerance):
    """Base of the six schemes: a worker's primary, and a secondary on another host.

    Barriers are the moments of checkpoints. Recovery is precise: what came since the last checkpoint is replayed, and
    nothing is lost. With ``gap=True`` it is not replayed: the worker is back sooner, the ledger has the gap, and no
    error is promised for it.

    >>> HotStandby(interval=0.5).exact, HotStandby(gap=True).exact
    (True, False)
    """

    gap: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        parameters.choice("gap", self.gap)

    @property
    def exact(self) -> bool:
        return not self.gap

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        return math.inf if self.gap else 0.0

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        plan = super().backup_plan(need)
        # No bound covers a gap, and yet a checkpoint holds everything.
        if self.gap and isinstance(plan, ThresholdBackup):
            return ThresholdBackup(theta=dict.fromkeys(need.theta, 0.0), items=need.items, full=need.full)
        return plan

    def promise(self, alpha: float | None = None) -> float | None:
        return None if self.gap else 0.0

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"gap": self.gap}


@dataclass(frozen=True)
class ActiveReplication(Replicated):
    """The secondary receives, processes and sends; whoever receives both drops what it has already."""

    name: ClassVar[str] = "active-replication"
    has_secondaries: ClassVar[bool] = True
    reason: ClassVar[str] = "a second copy processes and sends every item"


@dataclass(frozen=True)
class ActiveStandby(Replicated):
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


SCHEMES: tuple[type[Replicated], ...] = (
    ActiveReplication,
    ActiveStandby,
    HotStandby,
    ColdStandby,
    Deployed,
    PassiveReplication,
)
"""Those that need the fewest steps after a failure first."""
