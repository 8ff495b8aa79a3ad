"""The snapshots of a query: those under way, and the history of all others. Pure.

A query whose operators are all backed up with every batch has no snapshots of their own: there every record is one,
and nothing is noted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from afspark.coordinator.snapshot_under_way import SnapshotStage, SnapshotUnderWay
from afspark.numbers import Batch
from afspark.store import CommitRecord
from afspark.store.snapshot_history import SnapshotEntry, newest_complete, parts_since, trimmed

UNDER_WAY = "an earlier snapshot was on its way to the store"
APPLIED_BEFORE = "workers had applied the batch for an earlier driver, for which it was no barrier"
LOSS = "a worker was lost before all parts were durable"
OVERTAKEN = "a later one was complete before it"
FAILED = "its batch failed, or its record could not be written"


class Snapshots:
    """Follows the snapshots of one driver. ``taken``: whether there are any besides the records of all batches."""

    def __init__(self, *, taken: bool) -> None:
        self.taken = taken
        self._past: tuple[SnapshotEntry, ...] = ()
        self._under_way: list[SnapshotUnderWay] = []
        #: what the newest complete one names
        self._names: frozenset[str] = frozenset()

    def restore(self, record: CommitRecord | None) -> None:
        """Goes on with the history in the record that a driver starts from, which may have had another tolerance."""
        if record is not None:
            self._past, self._names = record.snapshots, record.references()

    @property
    def entries(self) -> tuple[SnapshotEntry, ...]:
        """All that is known, oldest first, with those under way."""
        return (*self._past, *(one.entry for one in self._under_way))

    def described(self) -> list[dict[str, Any]]:
        """The entries for users, each with its stage. A thread of theirs may ask while a batch runs."""
        # In this order: what moves to the past meanwhile is there, and not missed.
        under_way = [_described(one.entry, one.stage) for one in list(self._under_way)]
        past = described(self._past)
        known = {one["number"] for one in past}
        return [*past, *(one for one in under_way if one["number"] not in known)]

    @property
    def newest_complete(self) -> SnapshotEntry | None:
        """The newest one that is complete; None if this driver takes none: then a loss goes back to the last record."""
        return newest_complete(self._past) if self.taken else None

    @property
    def under_way(self) -> SnapshotUnderWay | None:
        """The newest one that is neither complete nor abandoned."""
        return self._under_way[-1] if self._under_way else None

    # --- what happens ---------------------------------------------------------------------------------------

    def due(self, barrier: Batch, now: float) -> None:
        """The batch that begins will end with a snapshot."""
        if not self.taken:
            return
        for one in self._under_way:
            if one.stage is SnapshotStage.DUE:
                # A batch that runs again is one snapshot, not two.
                one.abandon(FAILED)
        self._under_way = [one for one in self._under_way if not one.ended]
        number = max((entry.number for entry in self.entries), default=0) + 1
        self._under_way.append(SnapshotUnderWay(number, barrier, now))

    def skip(self, barrier: Batch, why: str) -> None:
        """A barrier was due, and nobody takes a snapshot there."""
        if not self.taken:
            return
        self._under_way = [one for one in self._under_way if one.stage is not SnapshotStage.DUE]
        if self._under_way:
            self._under_way[-1].skip(barrier, why)
        elif self._past:
            self._past = (*self._past[:-1], self._past[-1].with_skipped(barrier, why))

    def captured(self, record: CommitRecord, now: float) -> None:
        """All workers have applied the batch of ``record``, which is a barrier."""
        one = self._of(record.batch)
        if one is not None:
            before = [other.names for other in self._under_way if other is not one]
            one.captured(record, parts_since(record, before[-1] if before else self._names), now)

    def hear(self, pending: Collection[str]) -> None:
        """What of the backups the store may not have yet."""
        for one in self._under_way:
            one.hear(pending)

    def recording(self, record: CommitRecord, now: float) -> CommitRecord:
        """The record that is going to be written, with the history in it; those before it will not be written."""
        one = self._of(record.batch)
        if one is None:
            return replace(record, snapshots=self._past)
        one.recording(now)
        for earlier in self._under_way:
            if earlier.entry.barrier < record.batch:
                earlier.abandon(OVERTAKEN)
        self._bury()
        return replace(record, snapshots=trimmed((*self._past, one.entry)))

    def complete(self, barrier: Batch) -> None:
        """The record of ``barrier`` is durable."""
        one = self._of(barrier)
        if one is not None:
            one.complete()
            self._names = one.names
            self._bury()

    def abandon(self, why: str) -> None:
        """Nothing becomes of those whose records were not begun to be written."""
        for one in self._under_way:
            if one.stage in (SnapshotStage.CAPTURED, SnapshotStage.UPLOADING):
                one.abandon(why)
        self._bury()

    def fail(self, barrier: Batch) -> None:
        """The record of ``barrier`` could not be written."""
        one = self._of(barrier)
        if one is not None and not one.ended:
            one.abandon(FAILED)
            self._bury()

    def _of(self, barrier: Batch) -> SnapshotUnderWay | None:
        return next((one for one in self._under_way if one.entry.barrier == barrier), None)

    def _bury(self) -> None:
        """Moves what has ended to the past."""
        ended = [one.entry for one in self._under_way if one.ended]
        self._past = trimmed((*self._past, *ended))
        self._under_way = [one for one in self._under_way if not one.ended]


def described(entries: Sequence[SnapshotEntry]) -> list[dict[str, Any]]:
    """Entries of the past for users, each with its stage."""
    return [
        _described(entry, SnapshotStage.COMPLETE if entry.is_complete else SnapshotStage.ABANDONED) for entry in entries
    ]


def _described(entry: SnapshotEntry, stage: SnapshotStage) -> dict[str, Any]:
    found = {**entry.to_json(), "skipped": [vars(one) for one in entry.skipped], "stage": str(stage)}
    if stage not in (SnapshotStage.COMPLETE, SnapshotStage.ABANDONED):
        found["completed"] = None
    return found
