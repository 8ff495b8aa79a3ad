"""What the driver tells a worker for one batch, and what the worker answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from afspark.errors import AfsparkError
from afspark.model.windows import Agenda, Decaying, PaneReport, Window
from afspark.runtime.baditems import BadRules
from afspark.runtime.faults import FaultPlan
from afspark.runtime.lifecycle import Hint
from afspark.runtime.programme import Programme
from afspark.store import ObjectRef, Store
from afspark.store.quarantine import BadBatch


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """What a worker of a windowed operator must know of time before a batch.

    ``agenda`` is the one under which items are judged late; ``exposed`` are the panes a failure would strike now.
    ``now`` is the batch's processing time, fixed by Spark's offset log. Panes below ``needed_from`` can be dropped.
    """

    agenda: Agenda = field(default_factory=Agenda)
    exposed: frozenset[int] = frozenset()
    now: float = 0.0
    needed_from: int | None = None

    def tick(self, window: Window, seen: PaneReport | None) -> int | None:
        """The newest pane that is known of, with what a worker has ``seen`` in the batch at work."""
        return self.agenda.after(window, [] if seen is None else [seen]).tick(window)

    def panes_at_risk(self, *, known: bool) -> tuple[int | None, int | None]:
        """First and last pane that a state lost before the batch at work can have held; None where nobody knows.

        ``known``: the last commit tells which panes hold items, and nothing has been processed since.
        """
        if not known:
            return self.needed_from, None
        return (min(self.exposed), max(self.exposed)) if self.exposed else (0, -1)


@dataclass(frozen=True)
class Counted:
    """For what the loss of an incarnation is counted: its panes, or the ticks of a decaying window, and the thresholds
    that it was reckoned with (those of an unstruck pane).
    """

    struck: frozenset[int] = frozenset()
    theta: Mapping[str, float] = field(default_factory=dict)

    @property
    def may_lose(self) -> bool:
        return any(self.theta.values())

    def reaches(self, theta: Mapping[str, float]) -> bool:
        # A ledger of an earlier version does not say.
        return all(most <= self.theta.get(name, math.inf) for name, most in theta.items())


@dataclass(frozen=True, kw_only=True)
class Order:
    """One worker's part in batch ``batch``. Small: it travels with every task."""

    worker: int
    batch: int
    incarnation: int
    hint: Hint
    #: grows with every driver and every taken-back batch; tasks of an older one find the state closed to them
    fence: int
    home: str
    #: thresholds by state; those of panes with a history of failures separately
    theta: Mapping[str, float]
    missing: Mapping[str, float]
    pane_theta: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    pane_missing: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
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
    counted: Mapping[int, Counted] = field(default_factory=dict)
    #: False: only bring the state to the version before the batch
    apply: bool = True
    programme: Programme = ()
    calendar: Calendar = field(default_factory=Calendar)
    #: bytes of bad items that this worker may still keep
    quarantine_room: int = 0

    def losses_counted(self, *, exact: bool) -> bool:
        """Whether it is counted if items were confirmed that the state lacks; under an exact policy, whether another
        one that was in force before has let that happen.
        """
        return any(loss.may_lose for loss in self.counted.values()) if exact else self.counts or bool(self.counted)


@dataclass(frozen=True, kw_only=True)
class Mission:
    """What is the same for all workers of one operator and all batches of one run of a query."""

    query_id: str
    fingerprint: str
    operator_name: str
    workers: int
    checkpoint: str
    store: Store
    epoch: str
    driver_host: str
    segments: str | None
    #: emit the rows changed by a batch
    emit: bool
    faults: FaultPlan
    window: Window | None = None
    #: items come to the worker that owns their key
    keyed: bool = False
    #: the operators that what it sends goes to; none: nothing is kept
    successors: tuple[str, ...] = ()
    #: a sink takes what it sends
    appends: bool = False
    #: operators upstream that it may send feedback to
    feeds_back: tuple[str, ...] = ()
    #: items come from receivers, so that a batch cannot be applied anew
    pushed: bool = False
    #: the tolerance lets no failure change anything, so that none has to be counted
    exact: bool = False
    #: how many of them one worker can lose to all failures together
    losable_items: float = 0.0
    bad: BadRules = field(default_factory=BadRules)
    #: the operator as it was before it met any item, pickled; b"": whatever it raises is raised
    pristine: bytes = b""

    @property
    def stepped(self) -> bool:
        """Whether parts of a batch become final before it ends; what others will read of it is complete when it is."""
        return self.pushed and not (self.emit or self.appends or self.successors or self.feeds_back)

    def in_steps(self, programme: Programme) -> bool:
        """Whether parts of a batch with that programme become final before it ends.

        Not where windows close in it: what they show is what there was before its items, which a state that is
        restored inside the batch does not have any more.
        """
        return self.stepped and not programme


@dataclass(frozen=True)
class Trace:
    """What the store has of an incarnation in a batch that no record names: it may have confirmed items of it, so its
    loss has to be counted, for what it had ``seen`` of panes and time, at the thresholds it worked under at last.
    """

    incarnation: int
    seen: PaneReport | None = None
    theta: Mapping[str, float] = field(default_factory=dict)

    @property
    def panes(self) -> frozenset[int]:
        return frozenset() if self.seen is None else self.seen.panes

    @property
    def may_lose(self) -> bool:
        """Whether it was allowed to confirm what no backup had."""
        return any(self.theta.values())

    def is_counted(self, order: Order, window: Window | None) -> bool:
        """Whether its loss is counted for all of its panes, or at the tick that it had reached or a later one."""
        known = order.counted.get(self.incarnation)
        if known is None or not known.reaches(self.theta):
            return False
        if not isinstance(window, Decaying):
            return self.panes <= known.struck
        reached = order.calendar.tick(window, self.seen)
        return reached is None or any(tick >= reached for tick in known.struck)


class Status(StrEnum):
    """How a worker's task for a batch ended."""

    APPLIED = "applied"
    MISPLACED = "misplaced"
    BUSY = "busy"
    MISSING = "missing"
    CONTRADICTORY = "contradictory"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Report:
    """A worker's answer. All but ``error`` is JSON, kept in the segment for tasks that are retried."""

    worker: int
    status: Status
    host: str
    items: int = 0
    bytes: int = 0
    #: backups written, in order
    backups: tuple[ObjectRef, ...] = ()
    #: what came from a receiver: how far its lane has been taken, and what was missing
    positions: Mapping[str, int] | None = None
    gaps: tuple[Mapping[str, Any], ...] = ()
    #: what was left out because the operator could not take it
    bad: tuple[BadBatch, ...] = ()
    #: what of each map partition was applied: partition -> digest
    consumed: Mapping[str, str] = field(default_factory=dict)
    #: digests of what it keeps for others: port -> digest
    produced: Mapping[str, str] = field(default_factory=dict)
    #: columns of the items it sends to all, as `pack_schema` gives them; "" if it sent none
    columns: str = ""
    #: feedback sent: receiver -> items; and whether it is durable
    fed_back: Mapping[str, int] = field(default_factory=dict)
    feedback_durable: bool = True
    cells: int = 0
    memory: int = 0
    drift: Mapping[str, float] = field(default_factory=dict)
    #: the thresholds it was applied under
    theta: Mapping[str, float] = field(default_factory=dict)
    emitted: int = 0
    #: what a windowed operator has seen of time
    panes: PaneReport | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    restored_cells: int = 0
    #: items that went with an earlier incarnation, after its newest backup
    behind: int = 0
    #: with `Status.MISSING`: an incarnation whose loss nobody has counted
    trace: Trace | None = None
    detail: str = ""
    error: AfsparkError | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything a retried task needs to answer the same."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("error", "trace")}
        return values | {
            "backups": [ref.to_json() for ref in self.backups],
            "panes": self.panes.to_json() if self.panes else None,
            "bad": [bad.to_json() for bad in self.bad],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        return cls(
            **{
                **data,
                "status": Status(data["status"]),
                "damaged": tuple(data["damaged"]),
                "gaps": tuple(data.get("gaps", ())),
                "backups": tuple(ObjectRef(*ref) for ref in data.get("backups", ())),
                "panes": PaneReport.from_json(data["panes"]) if data["panes"] else None,
                "bad": tuple(BadBatch.from_json(bad) for bad in data.get("bad", ())),
            }
        )
