"""What the driver tells a worker for one batch, and what the worker answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.numbers import Batch, Fence, Incarnation, PaneNumber
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import CountedLoss
from afspark.protocol.punctuation_plan import PunctuationPlan
from afspark.store import ObjectRef


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """One worker's part in batch ``batch``. Small: it travels with every task."""

    worker: int
    batch: Batch
    incarnation: Incarnation
    hint: Hint
    #: grows with every driver and every taken-back batch; tasks of an older one find the state closed to them
    fence: Fence
    home: str
    #: thresholds by state; those of panes with a history of failures separately
    theta: Mapping[str, float]
    missing: Mapping[str, float]
    pane_theta: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    pane_missing: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    #: feedback items that may wait without a backup
    items: float = 0.0
    #: write a full image instead of pairs, so that the chain of backups starts anew
    full: bool = False
    #: examine all cells, not only touched ones, because the threshold was lowered since the last batch
    recheck: bool = False
    #: what a recovering worker loads
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: the first batch of a new incarnation: what the failure before it may have taken, by state; else None
    lost: Mapping[str, float] | None = None
    lost_items: int = 0
    #: whoever loses this incarnation will count that, whatever it has done in this batch, at these thresholds or more
    counts: bool = False
    #: counted losses by incarnation
    counted: Mapping[Incarnation, CountedLoss] = field(default_factory=dict)
    #: False: only bring the state to the version before the batch
    apply: bool = True
    punctuation_plan: PunctuationPlan = ()
    batch_time: BatchTime = field(default_factory=BatchTime)
    #: bytes of bad items that this worker may still keep
    quarantine_room: int = 0

    def theta_of(self, state: str, pane: PaneNumber | None) -> float:
        """The threshold of a state, in a pane that may have a history of failures of its own."""
        return (self.theta if pane is None else self.pane_theta.get(pane, self.theta))[state]

    def losses_counted(self, *, exact: bool) -> bool:
        """Whether it is counted if items were confirmed that the state lacks; under an exact policy, whether another
        one that was in force before has let that happen.
        """
        return any(loss.may_lose for loss in self.counted.values()) if exact else self.counts or bool(self.counted)
