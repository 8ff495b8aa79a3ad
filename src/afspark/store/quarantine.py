"""Items that an operator could not take, kept for whoever wants to know why, or to send them again.

A worker writes its rows before the items count as taken; they exist once the driver's index of the batch names them,
so that an attempt which was repeated leaves nothing behind that anybody reads.

=====================================================  ==========================================================
name                                                   object
=====================================================  ==========================================================
``quarantine/rows/<batch>-<operator>-<worker>-``       the rows that one attempt has left out
``<epoch>-<incarnation>-<number>``
``quarantine/index/<batch>``                           which of them the batch has left out in the end
=====================================================  ==========================================================
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from afspark.numbers import Batch, Incarnation
from afspark.store.base import Store
from afspark.store.format import seal
from afspark.store.reading import Damage, read_sealed

QUARANTINE = "quarantine"
_ROWS, _INDEX = f"{QUARANTINE}/rows", f"{QUARANTINE}/index"

#: What an object costs of the room there is, however small it is: their number is limited, too.
LEAST_BYTES = 4096

#: Columns beside ``row``, which is a struct of the item's own columns.
FACTS = pa.schema(
    [
        ("source", pa.string()),
        ("producer", pa.string()),
        ("number", pa.int64()),
        ("place", pa.string()),
        ("kind", pa.string()),
        ("error", pa.string()),
        ("at", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Count:
    """How many items of a source were bad for a reason of one kind."""

    source: str
    kind: str
    items: int


@dataclass(frozen=True, kw_only=True)
class BadBatch:
    """What a worker has left out of a batch or a step of one. ``name`` is empty if no row of it was kept."""

    counts: tuple[Count, ...]
    name: str = ""
    bytes: int = 0

    @property
    def items(self) -> int:
        return sum(count.items for count in self.counts)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BadBatch:
        return cls(name=found["name"], bytes=found["bytes"], counts=tuple(Count(**one) for one in found["counts"]))


@dataclass(frozen=True, kw_only=True)
class BadItem:
    """One item in quarantine.

    ``producer`` and ``number`` (its sequence number) are those of a pushed item. Of other input ``place`` tells
    where it was read, and ``number`` which row of that it is. ``kind`` is the class of ``error``, or "null key".
    """

    batch: Batch
    operator: str
    worker: int
    source: str
    producer: str | None
    number: int | None
    place: str
    kind: str
    error: str
    #: when it was put there, in seconds since 1970
    at: float
    row: Mapping[str, Any]


def sum_counts(counts: Iterable[Count]) -> tuple[Count, ...]:
    """One count for each source and kind, sorted."""
    totals: dict[tuple[str, str], int] = {}
    for count in counts:
        key = (count.source, count.kind)
        totals[key] = totals.get(key, 0) + count.items
    return tuple(Count(source, kind, items) for (source, kind), items in sorted(totals.items()))


class Quarantine:
    """The bad items of one query."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: what could not be read, after `items`
        self.damaged: list[Damage] = []

    def keep(self, name: str, rows: Sequence[pa.RecordBatch]) -> int:
        """Makes rows durable under a name that `rows_name` has made; what they take of the room there is."""
        data = seal({"kind": "quarantine"}, {str(number): batch for number, batch in enumerate(rows)})
        self._store.put(name, data)
        return max(len(data), LEAST_BYTES)

    def note(self, batch: Batch, left_out: Sequence[tuple[str, int, BadBatch]]) -> None:
        """Makes durable what a batch has left out, by operator and worker; replaces what was noted of it before."""
        name = f"{_INDEX}/{batch:012d}"
        entries = [
            {"operator": operator, "worker": worker, "name": one.name} for operator, worker, one in left_out if one.name
        ]
        if entries:
            self._store.put(name, seal({"kind": "quarantine-index", "batch": batch, "entries": entries}, {}))
        else:
            self._store.delete([name])

    def tidy(self, batch: Batch) -> list[str]:
        """Deletes rows of batches up to ``batch`` that no index names; returns their names. For start-up."""
        present = [name for name in self._store.list(_ROWS) if _batch_of(name) <= batch]
        if not present:
            return []
        named = {entry["name"] for _, entries in self._indices() for entry in entries}
        if self.damaged:
            return []
        orphans = [name for name in present if name not in named]
        self._store.delete(orphans)
        return orphans

    def items(self, operator: str | None = None) -> list[BadItem]:
        """All items that are kept, oldest first; those of one operator if it is named."""
        wanted = [
            (batch, entry)
            for batch, entries in self._indices()
            for entry in entries
            if operator in (None, entry["operator"])
        ]
        found = read_sealed(self._store, [entry["name"] for _, entry in wanted])
        self.damaged += [sealed for sealed in found if isinstance(sealed, Damage)]
        return [
            BadItem(batch=Batch(batch), operator=entry["operator"], worker=entry["worker"], **row)
            for (batch, entry), sealed in zip(wanted, found, strict=True)
            if not isinstance(sealed, Damage)
            for image in sealed.images.values()
            for row in image.to_pylist()
        ]

    def _indices(self) -> list[tuple[int, list[dict[str, Any]]]]:
        found = read_sealed(self._store, self._store.list(_INDEX))
        self.damaged = [sealed for sealed in found if isinstance(sealed, Damage)]
        return [(one.meta["batch"], one.meta["entries"]) for one in found if not isinstance(one, Damage)]


def rows_name(batch: Batch, operator: str, worker: int, epoch: str, incarnation: Incarnation, number: int) -> str:
    """The name of the rows that a worker leaves out of a batch, the ``number``-th of its objects there.

    As epoch and incarnation are part of it, a task that was replaced overwrites nothing that an index names.
    """
    folder = quote(operator, safe="").replace(".", "%2E")
    return f"{_ROWS}/{batch:012d}-{folder}-{worker:05d}-{epoch}-{incarnation:05d}-{number:05d}"


def _batch_of(name: str) -> int:
    number = name.rsplit("/", 1)[-1].partition("-")[0]
    return int(number) if number.isdigit() else sys.maxsize
