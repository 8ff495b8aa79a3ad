"""The states of tables and sets: cells by key, of which those with value 0 count as not there.

Cell number = order of first appearance of the key. A key that is removed keeps its cell, with value 0. Once
its removal is durable too, the cell is dead; when most cells are, ``rebuild`` copies the living ones into
columns of a new generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import OperatorMisuse, UsageError
from afspark.model.kernels import hashing
from afspark.model.kernels import table_kernels as kernel
from afspark.model.kernels.plain_arrays import Array, as_values
from afspark.model.states import keys as key_columns
from afspark.model.states.cells import BLOCK, CellState, roomy
from afspark.model.states.columns import Columns, HeapColumns
from afspark.model.states.keys import ByteKeys, IntegerKeys, KeyBlock
from afspark.model.states.scalars import Scalars, Slot
from afspark.model.states.state import StateSpec, one_of

KEY_TYPES: dict[str, pa.DataType] = {"string": pa.binary(), "int64": pa.int64()}

REBUILD_FLOOR = 4096
"""Cells below which a rebuild gains nothing."""

_ZERO = np.zeros(1, np.int64)
_NO_LABEL = np.uint64(0)


@dataclass(frozen=True, kw_only=True)
class KeyedSpec(StateSpec):
    """What tables and sets declare alike: the type of their keys, and whether null is one."""

    key: str = "string"
    null_key: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("key type", self.key, KEY_TYPES)
        if not isinstance(self.null_key, bool):
            raise UsageError(f"null_key is True or False, got {self.null_key!r}.", got=self.null_key)

    def to_json(self) -> dict[str, Any]:
        document = super().to_json()
        if not self.null_key:
            # Left out where it says nothing, as in checkpoints of states that could not say it.
            del document["null_key"]
        return document


class KeyedState(CellState):
    """Keys, their cells, and the count of those that live (value or shadow not 0)."""

    spec: KeyedSpec
    COLUMNS: ClassVar[tuple[str, ...]] = (*CellState.COLUMNS, *key_columns.COLUMNS)
    COUNTS_LIFE: ClassVar[bool] = True

    def __init__(self, spec: KeyedSpec, columns: Columns, name: str, value: str) -> None:
        super().__init__(spec, columns, name, value, 0)

    def _open_arrays(self, capacity: int) -> None:
        super()._open_arrays(max(capacity, self.size))
        self._keys = self._open_keys(self._label(), self._scalars)

    def _open_keys(self, label: str, scalars: Scalars) -> ByteKeys | IntegerKeys:
        kind: type[ByteKeys | IntegerKeys] = ByteKeys if self.spec.key == "string" else IntegerKeys
        return kind(self._columns, label, scalars, null_key=self.spec.null_key)

    @property
    def size(self) -> int:
        return self._scalars[Slot.ENTRIES]

    def __len__(self) -> int:
        """Number of keys that are there, counted by a scan."""
        return int(np.count_nonzero(self._values[: self.size]))

    # Updates

    def _update(self, keys: Any, values: Any, apply: Any) -> None:
        """Applies ``values``, one per key or one for all, to the cells of the keys."""
        self._require_open()
        prepared = self._keys.prepare(keys)
        amounts, step = as_values(values, self._type, len(prepared))
        for start in range(0, len(prepared), BLOCK):
            stop = min(start + BLOCK, len(prepared))
            cells = self._cells(prepared.slice(start, stop))
            self._touch(cells)
            apply(cells, amounts[start:stop] if step else amounts, step)

    def remove(self, keys: Any) -> None:
        """Takes keys out; those that are not there are ignored, and a key may come several times."""
        self._require_open()
        prepared = self._keys.prepare(keys)
        zero = _ZERO.astype(self._type)
        for start in range(0, len(prepared), BLOCK):
            found = self._keys.find(prepared.slice(start, min(start + BLOCK, len(prepared))))
            cells = found[found != kernel.ABSENT]
            self._touch(cells)
            self._put(cells, zero, 0)

    def _cells(self, block: KeyBlock) -> Array:
        """Cell numbers of the keys; new cells are zero.

        Cells beyond the published number always are: their values are journalled before they change, so an
        undone transaction put them back; shadows move only for cells that stay; old stamps are of other
        attempts.
        """
        cells, entries = self._keys.locate(block)
        self._room_for_cells(entries)
        self._scalars[Slot.ENTRIES] = entries
        return cells

    def refuse_foreign_keys(self, worker: int, workers: int) -> None:
        first = self._scalars[Slot.ENTRIES_BEFORE]
        owners = hashing.owners_of(self._keys.hashes_from(first), workers)
        foreign = np.flatnonzero(owners != worker)
        if len(foreign):
            key = self._keys.take((foreign[:1] + first).astype(np.uint32))[0].as_py()
            raise OperatorMisuse(
                f"Worker {worker} of {workers} has put the key {key!r} into the table {self.name!r}, which is declared "
                f"to have the operator's key; that key belongs to worker {owners[foreign[0]]}.",
                remedy="Use the operator's key column as it is for the table's key, also in on_feedback and "
                "on_punctuation, or leave operator_key out: the threshold is then divided among the workers.",
                state=self.name,
                key=repr(key),
                worker=worker,
                owner=int(owners[foreign[0]]),
            )

    # Transactions

    def _extent_begin(self) -> None:
        self._scalars[Slot.ENTRIES_BEFORE] = self.size
        self._scalars[Slot.LIVING_BEFORE] = self._scalars[Slot.LIVING]

    def _extent_rollback(self) -> None:
        self._keys.erase_from(self._scalars[Slot.ENTRIES_BEFORE])
        self._scalars[Slot.LIVING] = self._scalars[Slot.LIVING_BEFORE]

    def _extent_issue(self, cells: Array) -> None:
        # A pending cell differs from its shadow, so one with value 0 has lived by its shadow alone.
        zeros = len(cells) - int(np.count_nonzero(self._values[cells]))
        self._scalars[Slot.LIVING_AFTER] = self._scalars[Slot.LIVING] - zeros

    def _extent_acknowledge(self) -> None:
        self._scalars[Slot.LIVING] = self._scalars[Slot.LIVING_AFTER]

    def _extent_restore(self) -> None:
        self._scalars[Slot.LIVING] = len(self)

    # Backups

    def _is_fresh(self) -> bool:
        return self.size == 0

    def _load_pairs(self, keys: pa.Array, values: Array) -> None:
        """Puts values to keys; a zero takes no new cell."""
        present = values != 0
        if not present.all():
            cells = self._keys.find(self._keys.prepare(keys.filter(pa.array(~present))))
            self._values[cells[cells != kernel.ABSENT]] = 0
            keys, values = keys.filter(pa.array(present)), values[present]
        prepared = self._keys.prepare(keys)
        if self.size == 0:
            self._keys.reserve_for(prepared)
        self._put(self._cells(prepared), np.ascontiguousarray(values), 1)

    # Dead cells

    @property
    def wants_rebuild(self) -> bool:
        return self.size >= REBUILD_FLOOR and 2 * self._scalars[Slot.LIVING] < self.size

    def rebuild(self) -> None:
        label = self._next_generation()
        try:
            self._copy_living(label)
        except BaseException:
            self._drop_leftovers()
            raise
        self._switch_generation()
        self._open_arrays(self.size)

    def _copy_living(self, label: str) -> None:
        """Writes the columns of the next generation, and what the scalars will say of it."""
        values, shadows = self._values[: self.size], self._shadows[: self.size]
        living = np.flatnonzero((values != 0) | (shadows != 0)).astype(np.uint32)
        draft = Scalars(HeapColumns(), self.name)
        draft[Slot.SECRET] = self._scalars[Slot.SECRET]
        keys = self._open_keys(label, draft)
        block = keys.prepare(self._keys.take(living))
        keys.reserve_for(block)
        cells, entries = keys.locate(block)
        for column, source in (("value", values), ("shadow", shadows)):
            self._columns.open(f"{label}.{column}", self._type, roomy(entries))[cells] = source[living]
        self._scalars[Slot.ENTRIES_AFTER] = entries
        self._scalars[Slot.NULL_ENTRY_AFTER] = draft[Slot.NULL_ENTRY]
        self._scalars[Slot.INDEX_BITS_AFTER] = draft[Slot.INDEX_BITS]

    def _finish_rebuilding(self) -> None:
        scalars = self._scalars
        scalars[Slot.ENTRIES] = scalars[Slot.LIVING] = scalars[Slot.ENTRIES_AFTER]
        scalars[Slot.INDEX_BITS] = scalars[Slot.INDEX_BITS_AFTER]
        scalars[Slot.NULL_ENTRY] = scalars[Slot.NULL_ENTRY_AFTER]
        super()._finish_rebuilding()

    # Reading

    def _get(self, keys: Any) -> Array:
        cells = self._keys.find(self._keys.prepare(keys))
        values = np.empty(len(cells), self._values.dtype)
        kernel.values_or_zero(cells, self._values, values)
        return values

    def contains(self, keys: Any) -> Array:
        """Whether each key is there (boolean array)."""
        present: Array = self._get(keys) != 0
        return present

    def _places(self, cells: Array) -> Array:
        return self._keys.hashes_of(cells)

    def export(self) -> pa.RecordBatch:
        values = self._values[: self.size]
        cells = np.flatnonzero(values).astype(np.uint32)
        if len(cells) == self.size:
            return self._pairs(None, values.copy())
        return self._pairs(cells, values[cells])

    def arrangement(self) -> pa.RecordBatch:
        # A key that was removed comes back to its cell.
        return self._pairs(None, self._values[: self.size].copy())

    @property
    def memory(self) -> int:
        return super().memory + self._keys.memory


class HashTableState(KeyedState):
    """One worker's share of a hash table."""

    def add(self, keys: Any, values: Any) -> None:
        """Adds ``values`` (one per key, or one for all) to the keys; a key may come several times.

        ``StateLimit`` if a sum leaves int64.
        """
        self._update(keys, values, self._add)

    def put(self, keys: Any, values: Any) -> None:
        """Overwrites the values of the keys; of several values for one key the last wins."""
        self._update(keys, values, self._put)

    def merge_from(self, cells: pa.RecordBatch) -> None:
        self._require_schema(cells)
        self.add(cells.column("key"), cells.column("value"))

    def overwrite(self, pairs: pa.RecordBatch) -> None:
        self._require_schema(pairs)
        keys, values = pairs.column("key"), pairs.column("value")
        present = pa.array(values.to_numpy(zero_copy_only=False) != 0)
        # A zero takes no new cell.
        self.remove(keys.filter(pc.invert(present)))
        self.put(keys.filter(present), values.filter(present))

    def get(self, keys: Any) -> Array:
        """Present values of the keys, 0 for absent ones."""
        return self._get(keys)

    def _load(self, image: pa.RecordBatch) -> None:
        self._load_pairs(image.column("key"), image.column("value").to_numpy(zero_copy_only=False))

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        return pa.record_batch([self._keys.take(cells), pa.array(values)], schema=self.spec.pairs_schema)


class SetState(KeyedState):
    """One worker's share of a set: a table of ones."""

    def add(self, keys: Any) -> None:
        """Puts keys in; those that are there are ignored, and a key may come several times."""
        self._update(keys, 1, self._put)

    def merge_from(self, cells: pa.RecordBatch) -> None:
        self._require_schema(cells)
        self.add(cells.column("key").filter(cells.column("present")))

    def overwrite(self, pairs: pa.RecordBatch) -> None:
        self._require_schema(pairs)
        keys, present = pairs.column("key"), pairs.column("present")
        self.remove(keys.filter(pc.invert(present)))
        self.add(keys.filter(present))

    def members(self) -> pa.Array:
        """The present members, in order of first appearance."""
        return self.export().column("key")

    def _load(self, image: pa.RecordBatch) -> None:
        self._load_pairs(image.column("key"), image.column("present").to_numpy(zero_copy_only=False).astype(np.int64))

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        return pa.record_batch([self._keys.take(cells), pa.array(values != 0)], schema=self.spec.pairs_schema)
