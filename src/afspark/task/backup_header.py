"""What a backup says of itself, besides the images in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.numbers import Batch, Incarnation
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.task.step_progress import StepProgress


@dataclass(frozen=True, kw_only=True)
class BackupHeader:
    """Whose backup it is, of which batch, and how far the states were allowed to be from it."""

    query: str
    operator: str
    worker: int
    incarnation: Incarnation
    batch: Batch
    #: by state
    theta: Mapping[str, float] = field(default_factory=dict)
    full: bool = False
    cells: int = 0
    #: how far a batch of pushed items had come; None where items do not come from a lane
    progress: StepProgress | None = None

    @classmethod
    def of(cls, config: OperatorConfig, request: TaskRequest) -> BackupHeader:
        """The header of a backup without images."""
        return cls(
            query=config.query_id,
            operator=config.operator_name,
            worker=request.worker,
            incarnation=request.incarnation,
            batch=request.batch,
        )

    def to_json(self) -> dict[str, Any]:
        progress = self.progress.to_json() if self.progress else None
        return {**vars(self), "theta": dict(self.theta), "progress": progress}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BackupHeader:
        progress = StepProgress.from_json(found["progress"]) if found["progress"] else None
        return cls(**{**found, "progress": progress})
