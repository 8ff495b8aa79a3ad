"""What a worker answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from afspark.errors import AfsparkError
from afspark.model.effect_digest import EffectDigest
from afspark.model.windows import PaneReport
from afspark.numbers import Batch
from afspark.protocol.losses import LossEvidence
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.task_work import TaskWork
from afspark.store import ObjectRef
from afspark.store.itemlosses import Gap
from afspark.store.lane_order import LaneOrder, order_from_json, order_to_json
from afspark.store.quarantine import BadBatch


class Status(StrEnum):
    """How a worker's task for a batch ended."""

    APPLIED = "applied"
    MISPLACED = "misplaced"
    BUSY = "busy"
    MISSING = "missing"
    CONTRADICTORY = "contradictory"
    FAILED = "failed"


@dataclass(frozen=True)
class Restored:
    """A state that the task has restored from backups: how long that took, how many cells it has, and how many bytes
    were read.
    """

    seconds: float
    cells: int
    bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """A worker's answer. All but ``batch`` and ``error`` is JSON, kept in the segment for tasks that are retried."""

    worker: int
    #: which of the worker's replicas
    replica: int = 0
    status: Status
    host: str
    #: of which batch, where a task was asked for several
    batch: Batch | None = None
    items: int = 0
    bytes: int = 0
    #: backups written, in order
    backups: tuple[ObjectRef, ...] = ()
    #: names of backups, of this batch or earlier ones, that the store may not have yet
    pending: tuple[str, ...] = ()
    #: what came from a receiver: how far its lane has been taken, in which order, and what was missing
    positions: Mapping[str, int] | None = None
    lane_order: LaneOrder = ()
    gaps: tuple[Gap, ...] = ()
    #: what was left out because the operator could not take it
    bad: tuple[BadBatch, ...] = ()
    #: what of each map partition was applied: partition -> digest
    consumed: Mapping[str, str] = field(default_factory=dict)
    #: digests of what it keeps for others: port -> digest
    produced: Mapping[str, str] = field(default_factory=dict)
    #: what the batch has done, to be compared if it is replayed
    effects: Mapping[str, EffectDigest] = field(default_factory=dict)
    #: columns of the items it sends to all, as `pack_schema` gives them; "" if it sent none
    columns: str = ""
    #: feedback sent: receiver -> items; and whether it is durable
    fed_back: Mapping[str, int] = field(default_factory=dict)
    feedback_durable: bool = True
    cells: int = 0
    memory: int = 0
    drift: Mapping[str, float] = field(default_factory=dict)
    #: the backup plan it was applied under, as that describes itself
    plan: Mapping[str, Any] = field(default_factory=dict)
    emitted: int = 0
    #: what a windowed operator has seen of time
    panes: PaneReport | None = None
    #: how long each part of the task took; for people, nothing is concluded from it
    seconds: Mapping[str, float] = field(default_factory=dict)
    work: TaskWork = field(default_factory=TaskWork)
    #: what the operator tells of the batch; for people
    metrics: Mapping[str, Any] = field(default_factory=dict)
    #: set by the task that has restored the state
    restored: Restored | None = None
    #: objects that were passed over when the state was restored, told until its first batch is complete
    damaged: tuple[str, ...] = ()
    #: items that went with an earlier incarnation, after its newest backup
    behind: int = 0
    #: in this batch the operator was told that its worker had been lost
    told: bool = False
    #: with `Status.MISSING`: an incarnation whose loss nobody has counted
    trace: LossEvidence | None = None
    #: it has a state of before the batch, and was not to apply it
    lacks_batch: bool = False
    #: for people
    detail: str = ""
    error: AfsparkError | None = None

    @property
    def replica_id(self) -> ReplicaId:
        """Whose report it is."""
        return ReplicaId(self.worker, self.replica)

    @property
    def allowed_drift(self) -> Mapping[str, float]:
        """How far each state was allowed to be from its backup when the batch was applied."""
        allowed: Mapping[str, float] = self.plan.get("allows", {})
        return allowed

    @property
    def covers(self) -> bool:
        """Whether its backups hold the state after the batch, as far as the tolerance promises."""
        return bool(self.plan.get("covers", True))

    @property
    def is_whole(self) -> bool:
        """Whether its backups hold all of the state after the batch, and of what it has sent back."""
        return self.covers and self.feedback_durable and not any(self.allowed_drift.values())

    def to_json(self) -> dict[str, Any]:
        """Everything a retried task needs to answer the same."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("batch", "error", "trace")}
        return values | {
            "backups": [ref.to_json() for ref in self.backups],
            "lane_order": order_to_json(self.lane_order),
            "gaps": [vars(gap) for gap in self.gaps],
            "restored": vars(self.restored) if self.restored else None,
            "work": self.work.to_json(),
            "panes": self.panes.to_json() if self.panes else None,
            "bad": [bad.to_json() for bad in self.bad],
            "effects": {label: digest.to_json() for label, digest in self.effects.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskReport:
        return cls(
            **{
                **data,
                "status": Status(data["status"]),
                "damaged": tuple(data["damaged"]),
                "pending": tuple(data["pending"]),
                "lane_order": order_from_json(data.get("lane_order", {})),
                "gaps": tuple(Gap(**gap) for gap in data["gaps"]),
                "restored": Restored(**data["restored"]) if data["restored"] else None,
                "work": TaskWork(**data.get("work", {})),
                "backups": tuple(ObjectRef(*ref) for ref in data["backups"]),
                "panes": PaneReport.from_json(data["panes"]) if data["panes"] else None,
                "bad": tuple(BadBatch.from_json(bad) for bad in data["bad"]),
                "effects": {label: EffectDigest.from_json(one) for label, one in data["effects"].items()},
            }
        )
