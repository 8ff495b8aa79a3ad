"""When partial backups are replaced by a full image, and what may be deleted afterwards. Pure decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afspark.errors import UsageError
from afspark.store.commits import CommitRecord
from afspark.store.worker_record import ObjectRef, WorkerRecord

Chain = tuple[ObjectRef, ...]


@dataclass(frozen=True, kw_only=True)
class CompactionRule:
    """Partial backups are replaced when they hold ``max(floor_cells, cells of the full image)`` cells.

    So full images cost at most as much as the partial ones did, and recovery reads at most about twice the
    state. ``longest`` limits the objects of a chain, hence the requests of a recovery and the size of a
    commit record, when backups are tiny.
    """

    floor_cells: int = 65_536
    longest: int = 128

    def __post_init__(self) -> None:
        if self.floor_cells < 1 or self.longest < 1:
            raise UsageError(
                "floor_cells must be >= 1 and longest >= 1.",
                floor_cells=self.floor_cells,
                longest=self.longest,
            )

    def due(self, chain: Sequence[ObjectRef]) -> bool:
        """Whether the next backup should be a full image."""
        full = sum(ref.cells for ref in chain if ref.full)
        partial = sum(ref.cells for ref in chain if not ref.full)
        return len(chain) >= self.longest or partial >= max(self.floor_cells, full)


def extend(chain: Chain, previous: Chain, new: ObjectRef) -> tuple[Chain, Chain]:
    """The chain and the previous chain after a backup: a full image starts a new chain."""
    return ((new,), chain) if new.full else ((*chain, new), previous)


def chain_to_restore(record: WorkerRecord) -> tuple[Chain, Chain]:
    """What a worker that has lost its state is restored from: the chain and the previous one."""
    chain, previous = record.chain, record.previous
    for backup in record.at_rest:
        chain, previous = extend(chain, previous, backup)
    return chain, previous


def garbage(dropped: Iterable[CommitRecord], kept: Iterable[CommitRecord], others: Iterable[str] = ()) -> set[str]:
    """Objects that only dropped records name, and ``others`` that no record names.

    Chains and previous chains of kept records are protected.
    """
    needed = {name for record in kept for name in record.references()}
    return {*others, *(name for record in dropped for name in record.references())} - needed
