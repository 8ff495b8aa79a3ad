"""What a commit record says of one worker: which objects hold its durable state, and which failures count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from afspark.numbers import Incarnation
from afspark.store.counted_failure import CountedFailure
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
    head, and the partial backups after it; where the workers are others in number than before, the image may be in
    several objects with different keys. ``previous`` is the chain the full image replaced, kept in case
    that image turns out to be damaged. ``at_rest`` is what was backed up after the batch had ended: a restore
    reads it after the chain, but the backups of a worker that still has its state do not build on it.
    """

    worker: int
    incarnation: Incarnation
    failures: int
    completed: int
    host: str
    theta: Mapping[str, float]
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: counted losses that still matter
    counted_failures: tuple[CountedFailure, ...] = ()
    #: items of its last batch that wait in no backup
    waiting: int = 0
    at_rest: tuple[ObjectRef, ...] = ()
    #: backups that the chain builds on are unknown, because no record that named them can be read
    hole: bool = False
    #: its operator has yet to be told of losses, which took so many feedback items; None: of none
    untold: int | None = None

    def objects(self) -> tuple[ObjectRef, ...]:
        """All objects this worker may need."""
        return (*self.chain, *self.previous, *self.at_rest)

    @property
    def is_whole(self) -> bool:
        """Whether its backups are the whole state."""
        return not any(self.theta.values()) and not self.waiting and not self.hole

    def references(self) -> Iterator[str]:
        """Their names."""
        return (ref.name for ref in self.objects())

    def to_json(self) -> dict[str, Any]:
        # vars() instead of asdict(): a record is written every batch, and asdict copies all it meets.
        fields = vars(self) | {"at_rest": [ref.to_json() for ref in self.at_rest]}
        if not self.at_rest:
            del fields["at_rest"]
        if not self.hole:
            del fields["hole"]
        if self.untold is None:
            del fields["untold"]
        return {
            **fields,
            "theta": dict(self.theta),
            "chain": [ref.to_json() for ref in self.chain],
            "previous": [ref.to_json() for ref in self.previous],
            "counted_failures": [failure.to_json() for failure in self.counted_failures],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> WorkerRecord:
        return cls(
            **{
                **found,
                "chain": tuple(ObjectRef(*ref) for ref in found["chain"]),
                "previous": tuple(ObjectRef(*ref) for ref in found["previous"]),
                "counted_failures": tuple(map(CountedFailure.from_json, found["counted_failures"])),
                "at_rest": tuple(ObjectRef(*ref) for ref in found.get("at_rest", ())),
            }
        )
