"""What the driver tells a worker for one batch, and what the worker answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from afspark.errors import AfsparkError
from afspark.runtime.faults import FaultPlan
from afspark.runtime.lifecycle import Hint
from afspark.store import ObjectRef, Store


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
    theta: Mapping[str, float]
    missing: Mapping[str, float]
    #: write a full image instead of pairs, so that the chain of backups starts anew
    full: bool = False
    #: examine all cells, not only touched ones, because the threshold was lowered since the last batch
    recheck: bool = False
    #: what a recovering worker loads
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: False: only bring the state to the version before the batch
    apply: bool = True


@dataclass(frozen=True, kw_only=True)
class Mission:
    """What is the same for all workers and batches of one run of a query."""

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
    backup: ObjectRef | None = None
    #: what of each map partition was applied: partition -> digest
    consumed: Mapping[str, str] = field(default_factory=dict)
    cells: int = 0
    memory: int = 0
    drift: Mapping[str, float] = field(default_factory=dict)
    emitted: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    restored_cells: int = 0
    detail: str = ""
    error: AfsparkError | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything a retried task needs to answer the same."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "error"}
        return values | {"backup": self.backup.to_json() if self.backup else None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Report:
        report = cls(**{**data, "backup": None, "status": Status(data["status"]), "damaged": tuple(data["damaged"])})
        return replace(report, backup=ObjectRef(*data["backup"])) if data["backup"] else report
