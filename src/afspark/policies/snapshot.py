"""Exact recovery by barrier snapshots: the state of all workers at the end of one batch, and replay from there.

After Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows". The end of a batch is a barrier:
every operator has applied it, and nothing is in transit but feedback, which goes into the snapshot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from afspark.bounds.thresholds import Place
from afspark.errors import UsageError
from afspark.policies import parameters
from afspark.policies.plans import AwaitBarrier, BackupNeed, BackupPlan
from afspark.policies.tolerance import Tolerance

DEFAULT_INTERVAL = 1.0
"""Seconds between two barriers."""

_DISTANCE = "It says how far apart barriers are: interval in seconds, batches, or items."
_COUNTS = {
    "full_every": (1, "It says how many snapshots may build on a full image, itself included."),
    "keep": (2, "The one before the newest is needed if that turns out to be damaged."),
}


@dataclass(frozen=True)
class BarrierSnapshot(Tolerance):
    """Exact: at every barrier the workers copy what has changed since the last one, and go on.

    The copies reach the store behind the next batches; a snapshot counts once all of it is durable. A worker that is
    lost is restored from the newest such snapshot, and applies the batches since then once more, while all others keep
    their state. A barrier is the end of the first batch that begins ``interval`` seconds after the last one; or of
    every so many ``batches``; or of the first that begins when so many ``items`` have come since. While a snapshot is
    on its way to the store no other one is begun. An orderly end of the query takes a last one.

    A worker's snapshots build on each other: every ``full_every``-th is a full image, so that a recovery reads at most
    so many objects; earlier ones come when the changes outweigh the last image. The newest ``keep`` complete snapshots
    stay in the store, with all objects that they build on; by default 8, and up to 16 before older ones are deleted.

    With ``asynchronous=False`` everybody waits at a barrier until the snapshot is durable. With ``recovery="full"``
    a loss takes everybody back to the last snapshot. Both are for comparison.

    Pushed items stay with their sender until a snapshot covers them, and are acknowledged then; with ``log_items`` they
    are in the item log before a worker gets them, and are acknowledged out of it. ``unacked`` is how many items a
    sender may have under way.

    >>> BarrierSnapshot().interval
    1.0
    >>> BarrierSnapshot(batches=5).is_due(seconds=60.0, batches=4, items=10**6)
    False
    """

    interval: float | None = None
    batches: int | None = None
    items: int | None = None
    asynchronous: bool = True
    recovery: str = "partial"
    full_every: int | None = None
    keep: int | None = None
    unacked: float = math.inf
    log_items: bool = False

    name: ClassVar[str] = "snapshot"
    replays: ClassVar[bool] = True
    reason: ClassVar[str] = "every change is backed up at the next barrier, and replayed until then"

    def __post_init__(self) -> None:
        chosen = self._distances()
        if len(chosen) > 1:
            raise UsageError(
                f"A barrier snapshot has one interval, not {len(chosen)}: {', '.join(chosen)}.",
                remedy="Give interval (seconds), batches or items.",
            )
        plain: dict[str, Any] = {} if chosen else {"interval": DEFAULT_INTERVAL}
        for name, value in chosen.items():
            checked = parameters.seconds if name == "interval" else parameters.count
            plain[name] = checked(name, value, _DISTANCE)
        for name, (least, meaning) in _COUNTS.items():
            if (value := getattr(self, name)) is not None:
                plain[name] = parameters.count(name, value, meaning, least=least)
        plain["unacked"] = parameters.limit("unacked", self.unacked)
        parameters.choice("asynchronous", self.asynchronous)
        parameters.choice("log_items", self.log_items)
        if not parameters.is_one_of(self.recovery, "partial", "full"):
            raise UsageError(
                f"Unknown recovery {parameters.shown(self.recovery)}.",
                remedy='Use "partial" (the lost worker is replayed) or "full" (everybody goes back).',
            )
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _distances(self) -> dict[str, Any]:
        """What says how far apart barriers are."""
        given = {"interval": self.interval, "batches": self.batches, "items": self.items}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def exact(self) -> bool:
        return True

    @property
    def waits_at_barriers(self) -> bool:
        return not self.asynchronous

    @property
    def takes_all_back(self) -> bool:
        return self.recovery == "full"

    @property
    def barrier_seconds(self) -> float:
        return self.interval or 0.0

    @property
    def longest_chain(self) -> int | None:
        return self.full_every

    @property
    def records_kept(self) -> int | None:
        return self.keep

    def is_due(self, *, seconds: float, batches: int, items: int) -> bool:
        """Whether a batch ends with a barrier that begins so many seconds, batches and items after the last one."""
        if self.batches is not None:
            return batches >= self.batches
        if self.items is not None:
            return items >= self.items
        return seconds >= (self.interval or DEFAULT_INTERVAL)

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        return super().backup_plan(need) if need.barrier else AwaitBarrier()

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        return 0.0

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return self.unacked / place.workers

    @property
    def keeps_upstream(self) -> bool:
        return not self.log_items

    @property
    def logs_first(self) -> bool:
        return self.log_items

    def promise(self, alpha: float | None = None) -> float | None:
        return 0.0

    def to_json(self) -> dict[str, Any]:
        given = {"full_every": self.full_every, "keep": self.keep}
        chosen = self._distances() | {name: value for name, value in given.items() if value is not None}
        pushed: dict[str, Any] = {"log_items": True} if self.log_items else {}
        if math.isfinite(self.unacked):
            pushed["unacked"] = self.unacked
        return {"name": self.name, **chosen, "asynchronous": self.asynchronous, "recovery": self.recovery, **pushed}
