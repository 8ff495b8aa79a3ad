"""The history of snapshots, as commit records carry it: what became of each, and which barriers were skipped. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from afspark.numbers import Batch
from afspark.store.worker_record import ObjectRef

if TYPE_CHECKING:
    from afspark.store.commits import CommitRecord

MOST_ENTRIES = 200
"""How many snapshots a history remembers: the newest."""


@dataclass(frozen=True, kw_only=True)
class SkippedBarriers:
    """Barriers from ``first`` to ``last`` that were due and at which nobody took a snapshot, for the same reason."""

    first: Batch
    last: Batch
    barriers: int
    why: str


@dataclass(frozen=True, kw_only=True)
class SnapshotEntry:
    """One snapshot: the state of the whole query at the end of the batch ``barrier``. Times are seconds since 1970.

    ``started`` is when all workers had applied that batch; when the batch began, while they have not. ``completed`` is
    when the store had all its parts and the record that names them was written; None if that never came: then
    ``abandoned`` says why, unless it is still under way.
    """

    number: int
    barrier: Batch
    started: float
    completed: float | None = None
    #: objects that it added to those of the snapshots before it, how many of these are full images, and their size
    parts: int = 0
    full: int = 0
    bytes: int = 0
    abandoned: str = ""
    #: barriers between this one and the next
    skipped: tuple[SkippedBarriers, ...] = ()

    @property
    def is_complete(self) -> bool:
        return self.completed is not None

    def with_skipped(self, barrier: Batch, why: str) -> SnapshotEntry:
        """The same, after another barrier behind it was skipped; its size depends on the reasons, not on how many.

        >>> one = SnapshotEntry(number=1, barrier=4, started=0.0).with_skipped(5, "no room").with_skipped(6, "no room")
        >>> [(skipped.first, skipped.last, skipped.barriers) for skipped in one.skipped]
        [(5, 6, 2)]
        """
        others = tuple(one for one in self.skipped if one.why != why)
        known = next((one for one in self.skipped if one.why == why), None)
        first, barriers = (known.first, known.barriers) if known else (barrier, 0)
        return replace(
            self, skipped=(*others, SkippedBarriers(first=first, last=barrier, barriers=barriers + 1, why=why))
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SnapshotEntry:
        return cls(**{**found, "skipped": tuple(SkippedBarriers(**one) for one in found["skipped"])})


def newest_complete(entries: Sequence[SnapshotEntry]) -> SnapshotEntry | None:
    """The snapshot that a loss goes back to."""
    return next((entry for entry in reversed(entries) if entry.is_complete), None)


def trimmed(entries: Iterable[SnapshotEntry]) -> tuple[SnapshotEntry, ...]:
    """The newest of them, as many as a history remembers."""
    return tuple(entries)[-MOST_ENTRIES:]


def parts_since(record: CommitRecord, known: Collection[str]) -> list[ObjectRef]:
    """The objects that a restore from ``record`` reads and that are not among the ``known`` names."""
    workers = (worker for operator in record.operators.values() for worker in operator.workers)
    return [ref for worker in workers for ref in (*worker.chain, *worker.at_rest) if ref.name not in known]
