"""What a backup says of itself, besides the images in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from afspark.numbers import Batch, Incarnation
from afspark.task.step_progress import StepProgress


@dataclass(frozen=True, kw_only=True)
class BackupHeader:
    """Whose backup it is, of which batch, and the thresholds that it was made under."""

    query: str
    operator: str
    worker: int
    incarnation: Incarnation
    batch: Batch
    full: bool
    cells: int
    theta: Mapping[str, float]
    #: how far a batch of pushed items had come; None where items do not come from a lane
    progress: StepProgress | None = None

    def to_json(self) -> dict[str, Any]:
        progress = self.progress.to_json() if self.progress else None
        return {**vars(self), "theta": dict(self.theta), "progress": progress}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BackupHeader:
        progress = StepProgress.from_json(found["progress"]) if found["progress"] else None
        return cls(**{**found, "progress": progress})
