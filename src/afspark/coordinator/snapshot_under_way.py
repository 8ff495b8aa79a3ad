"""One snapshot on its way, from the barrier that is due to the record that names it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum

from afspark.errors import CheckpointError
from afspark.numbers import Batch
from afspark.store import CommitRecord, ObjectRef
from afspark.store.snapshot_history import SnapshotEntry


class SnapshotStage(StrEnum):
    """How far a snapshot has come."""

    DUE = "due"  # the batch at work will end with it
    CAPTURED = "captured"  # every worker has applied that batch, and has its part beside its state
    UPLOADING = "uploading"  # the store lacks some part
    RECORDING = "recording"  # the store has all parts, and the record is being written
    COMPLETE = "complete"  # the record is durable: a loss goes back to it
    ABANDONED = "abandoned"  # it will never be complete, and nobody uses it


_NEXT: dict[SnapshotStage, tuple[SnapshotStage, ...]] = {
    SnapshotStage.DUE: (SnapshotStage.CAPTURED, SnapshotStage.ABANDONED),
    SnapshotStage.CAPTURED: (SnapshotStage.UPLOADING, SnapshotStage.RECORDING, SnapshotStage.ABANDONED),
    SnapshotStage.UPLOADING: (SnapshotStage.UPLOADING, SnapshotStage.RECORDING, SnapshotStage.ABANDONED),
    SnapshotStage.RECORDING: (SnapshotStage.COMPLETE, SnapshotStage.ABANDONED),
    SnapshotStage.COMPLETE: (),
    SnapshotStage.ABANDONED: (),
}


class SnapshotUnderWay:
    """A snapshot with what the history will say of it. `CheckpointError` for a step that its stage does not allow."""

    def __init__(self, number: int, barrier: Batch, now: float) -> None:
        self.stage = SnapshotStage.DUE
        self.entry = SnapshotEntry(number=number, barrier=barrier, started=now)
        #: objects that its record names
        self.names: frozenset[str] = frozenset()

    @property
    def ended(self) -> bool:
        """Whether nothing can become of it any more."""
        return not _NEXT[self.stage]

    def captured(self, record: CommitRecord, parts: Sequence[ObjectRef], now: float) -> None:
        """All workers have applied the barrier's batch; ``record`` will say so."""
        self._enter(SnapshotStage.CAPTURED)
        self.names = record.references()
        self.entry = replace(
            self.entry,
            started=now,
            parts=len(parts),
            full=sum(ref.full for ref in parts),
            bytes=sum(ref.bytes for ref in parts),
        )

    def hear(self, pending: Collection[str]) -> None:
        """What the store may not have yet, of this snapshot and others."""
        if self.stage in (SnapshotStage.CAPTURED, SnapshotStage.UPLOADING) and not self.names.isdisjoint(pending):
            self._enter(SnapshotStage.UPLOADING)

    def recording(self, now: float) -> None:
        """The store has all parts; its record is being written with the entry as it is from here on."""
        self._enter(SnapshotStage.RECORDING)
        self.entry = replace(self.entry, completed=now)

    def complete(self) -> None:
        """Its record is durable."""
        self._enter(SnapshotStage.COMPLETE)

    def abandon(self, why: str) -> None:
        """It will never be complete."""
        self._enter(SnapshotStage.ABANDONED)
        self.entry = replace(self.entry, completed=None, abandoned=why)

    def skip(self, barrier: Batch, why: str) -> None:
        """Nobody takes a snapshot at a barrier behind this one."""
        self.entry = self.entry.with_skipped(barrier, why)

    def _enter(self, stage: SnapshotStage) -> None:
        if stage not in _NEXT[self.stage]:
            raise CheckpointError(
                f"Snapshot {self.entry.number} is {self.stage} and cannot become {stage}.",
                remedy="This is a defect of afspark; please report it.",
                number=self.entry.number,
                stage=str(self.stage),
            )
        self.stage = stage
