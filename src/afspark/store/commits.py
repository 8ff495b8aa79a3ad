"""What a commit record says: for each worker, which objects hold its durable state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from afspark.store.format import checksum_of

# Inside `ObjectRef` the word ``bytes`` is a field.
Bytes = bytes


@dataclass(frozen=True)
class ObjectRef:
    """A backup object as a record names it: an object with another checksum or size is not that object."""

    name: str
    checksum: str
    bytes: int
    cells: int
    full: bool

    @classmethod
    def of(cls, name: str, data: Bytes, *, cells: int, full: bool) -> ObjectRef:
        """The reference to sealed ``data`` stored under ``name``."""
        return cls(name, checksum_of(data), len(data), cells, full)

    def to_json(self) -> list[Any]:
        return [self.name, self.checksum, self.bytes, self.cells, self.full]


@dataclass(frozen=True)
class WorkerRecord:
    """One worker at the end of a batch.

    ``failures`` are the counted losses so far, ``completed`` the batches its incarnation has completed,
    ``theta`` the threshold in force by state. ``chain`` is the durable state: at most one full image, at the
    head, and the partial backups after it. ``previous`` is the chain the full image replaced, kept in case
    that image turns out to be damaged.
    """

    worker: int
    incarnation: int
    failures: int
    completed: int
    host: str
    theta: dict[str, float]
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: counted losses that still matter, as the runtime describes them
    counted_failures: tuple[dict[str, Any], ...] = ()
    #: items of its last batch that wait in no backup
    waiting: int = 0

    def references(self) -> Iterator[str]:
        """Names of all objects this worker may need."""
        return (ref.name for ref in (*self.chain, *self.previous))

    def to_json(self) -> dict[str, Any]:
        # vars() instead of asdict(): a record is written every batch, and asdict copies all it meets.
        chains = {
            "chain": [ref.to_json() for ref in self.chain],
            "previous": [ref.to_json() for ref in self.previous],
        }
        return {**vars(self), **chains, "counted_failures": list(self.counted_failures)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> WorkerRecord:
        chains = {part: tuple(ObjectRef(*ref) for ref in value[part]) for part in ("chain", "previous")}
        return cls(**{**value, **chains, "counted_failures": tuple(value["counted_failures"])})


@dataclass(frozen=True)
class CommitRecord:
    """The state of the whole query after ``batch``, written once by the driver of ``epoch``.

    ``extra`` is the runtime's own and must be JSON; tuples in it come back as lists.
    """

    batch: int
    epoch: str
    operators: dict[str, tuple[WorkerRecord, ...]]
    extra: dict[str, Any] = field(default_factory=dict)

    def references(self) -> frozenset[str]:
        """Names of all objects some worker may need."""
        return frozenset(
            name for workers in self.operators.values() for worker in workers for name in worker.references()
        )

    def to_json(self) -> dict[str, Any]:
        operators = {operator: [worker.to_json() for worker in workers] for operator, workers in self.operators.items()}
        return {**vars(self), "operators": operators}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CommitRecord:
        """The record `to_json` described; KeyError or TypeError for anything else."""
        operators = {
            operator: tuple(WorkerRecord.from_json(worker) for worker in workers)
            for operator, workers in value["operators"].items()
        }
        return cls(value["batch"], value["epoch"], operators, value["extra"])
