"""How far what is durable is behind the batches: what a failure now would have applied again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.coordinator.snapshot_under_way import SnapshotUnderWay
from afspark.coordinator.snapshots import Snapshots
from afspark.coordinator.worker_state import Covered
from afspark.numbers import Batch
from afspark.store.snapshot_history import SnapshotEntry


@dataclass(frozen=True, kw_only=True)
class NewestSnapshot:
    """The newest complete snapshot; its age is that of the state it holds."""

    number: int
    barrier: Batch
    age_seconds: float


@dataclass(frozen=True, kw_only=True)
class PendingSnapshot:
    """A snapshot that is neither complete nor abandoned."""

    number: int
    barrier: Batch
    stage: str


@dataclass(frozen=True, kw_only=True)
class Durability:
    """What is durable at the end of a batch."""

    #: the newest batch whose effects are durable; None: none yet
    batch: Batch | None
    #: what a lost worker would apply again: so many batches, how long they took, and the items in them, of all workers;
    #: None where nobody knows
    replay_batches: int
    replay_seconds: float
    replay_items: int | None
    #: None without `BarrierSnapshot`
    snapshot: NewestSnapshot | None
    under_way: PendingSnapshot | None


def durability(
    batch: Batch, items: int, covered: Covered, snapshots: Snapshots, *, replay_seconds: float, now: float
) -> Durability:
    """What is durable at the end of ``batch``, after so many ``items`` of all sources."""
    record = covered.record
    known = record is not None and record.batch == covered.batch
    taken = record.items if record is not None and known else 0
    return Durability(
        batch=covered.batch if covered.batch >= 0 else None,
        replay_batches=batch - covered.batch,
        replay_seconds=replay_seconds,
        replay_items=items - taken if known or covered.batch < 0 else None,
        snapshot=_newest(snapshots.newest_complete, now),
        under_way=_pending(snapshots.under_way),
    )


def _newest(entry: SnapshotEntry | None, now: float) -> NewestSnapshot | None:
    if entry is None:
        return None
    return NewestSnapshot(number=entry.number, barrier=entry.barrier, age_seconds=max(0.0, now - entry.started))


def _pending(one: SnapshotUnderWay | None) -> PendingSnapshot | None:
    if one is None:
        return None
    return PendingSnapshot(number=one.entry.number, barrier=one.entry.barrier, stage=str(one.stage))
