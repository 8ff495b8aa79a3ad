"""What the exact policies share that back state up at some barriers only, and replay what came since."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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
class BarrierTolerance(Tolerance):
    """Base of policies with barriers: so far apart in seconds (``interval``), ``batches`` or ``items``.

    Every ``full_every``-th backup of a worker is a full image, and the newest ``keep`` records stay in the store.
    ``unacked`` is how many pushed items a sender may have under way; with ``log_items`` they are in the item log before
    a worker gets them, otherwise their sender keeps them until a record covers them.
    """

    interval: float | None = None
    batches: int | None = None
    items: int | None = None
    full_every: int | None = field(default=None, kw_only=True)
    keep: int | None = field(default=None, kw_only=True)
    unacked: float = field(default=math.inf, kw_only=True)
    log_items: bool = field(default=False, kw_only=True)

    replays: ClassVar[bool] = True

    def __post_init__(self) -> None:
        chosen = self._distances()
        if len(chosen) > 1:
            raise UsageError(
                f"{type(self).__name__} has one interval between barriers, not {len(chosen)}: {', '.join(chosen)}.",
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
        parameters.choice("log_items", self.log_items)
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
        # JSON knows no infinity.
        if math.isfinite(self.unacked):
            pushed["unacked"] = self.unacked
        return {"name": self.name, **chosen, **pushed}
