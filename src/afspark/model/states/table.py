"""HashTable: numbers by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.model.kernels import table as kernel
from afspark.model.states.base import StateSpec, one_of, register_state
from afspark.model.states.cells import BLOCK, VALUE_TYPES, CellState
from afspark.model.states.columns import Array, Columns
from afspark.model.states.inputs import as_values
from afspark.model.states.keys import ByteKeys, IntegerKeys, KeyBlock, roomy
from afspark.model.states.scalars import Slot

_KEY_TYPES: dict[str, pa.DataType] = {"string": pa.binary(), "int64": pa.int64()}


@register_state
@dataclass(frozen=True, kw_only=True)
class HashTable(StateSpec):
    """A table of numbers by key; absent keys count as 0, keys once added stay.

    ``key`` is "string" (text and binary alike; compared as bytes) or "int64", ``value`` "int64" or "float64".
    One worker's share holds at most 2^32 - 1 keys and 2^31 - 1 bytes of string keys; beyond that updates
    raise ``StateLimit``.

    >>> from afspark.model.states import HashTable, HeapColumns
    >>> counts = HashTable(key="string", divergence="max").open(HeapColumns(), "counts")
    >>> counts.begin()
    >>> counts.add(["to", "be", "or", "not", "to", "be"], 1)
    >>> counts.get(["to", "question"]).tolist()
    [2, 0]
    >>> counts.issue(theta=1.5).to_pydict()
    {'key': [b'to', b'be', b'or', b'not'], 'value': [2, 2, 1, 1]}
    """

    kind: ClassVar[str] = "hashtable"
    key: str = "string"
    value: str = "int64"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("key type", self.key, _KEY_TYPES)
        one_of("value type", self.value, VALUE_TYPES)

    def open(self, columns: Columns, name: str) -> HashTableState:
        return HashTableState(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pa.schema([("key", _KEY_TYPES[self.key]), ("value", pa.type_for_alias(self.value))])


class HashTableState(CellState):
    """One worker's share of a hash table. Cell number = order of first appearance of the key."""

    spec: HashTable

    def __init__(self, spec: HashTable, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name, spec.value, 0)
        keys = ByteKeys if spec.key == "string" else IntegerKeys
        self._keys: ByteKeys | IntegerKeys = keys(columns, name, self._scalars)

    @property
    def size(self) -> int:
        return self._scalars[Slot.ENTRIES]

    def __len__(self) -> int:
        return self.size

    # Updates

    def add(self, keys: Any, values: Any, hashes: Array | None = None) -> None:
        """Adds ``values`` (one per key, or one for all) to the keys; a key may come several times.

        ``hashes``, if the caller has them already, must be ``hash_strings(keys)``; integer keys ignore them.
        ``StateLimit`` if a sum leaves int64.
        """
        self._update(keys, values, hashes, self._add)

    def put(self, keys: Any, values: Any, hashes: Array | None = None) -> None:
        """Overwrites the values of the keys; of several values for one key the last wins."""
        self._update(keys, values, hashes, self._put)

    def _update(self, keys: Any, values: Any, hashes: Array | None, apply: Any) -> None:
        self._require_open()
        prepared = self._keys.prepare(keys, hashes)
        amounts, step = as_values(values, VALUE_TYPES[self.spec.value], len(prepared))
        for start in range(0, len(prepared), BLOCK):
            stop = min(start + BLOCK, len(prepared))
            cells = self._cells(prepared.slice(start, stop))
            self._touch(cells)
            apply(cells, amounts[start:stop] if step else amounts, step)

    def _cells(self, block: KeyBlock) -> Array:
        """Cell numbers of the keys; new cells are zero.

        Cells beyond the published number always are: their values are journalled before they change, so an
        undone transaction put them back; shadows move only for cells that stay; old stamps are of other
        attempts.
        """
        cells, entries = self._keys.locate(block)
        if entries > min(len(self._values), len(self._shadows), len(self._stamps)):
            self._room_for_cells(entries)
        self._scalars[Slot.ENTRIES] = entries
        return cells

    def _room_for_cells(self, entries: int) -> None:
        self._values = self._columns.grow(f"{self.name}.value", roomy(entries))
        self._shadows = self._columns.grow(f"{self.name}.shadow", roomy(entries))
        self._stamps = self._columns.grow(f"{self.name}.stamp", roomy(entries))

    # Transactions

    def _extent_begin(self) -> None:
        self._scalars[Slot.ENTRIES_BEFORE] = self.size

    def _extent_rollback(self) -> None:
        self._keys.erase_from(self._scalars[Slot.ENTRIES_BEFORE])

    def _is_fresh(self) -> bool:
        return self.size == 0

    def _load(self, image: pa.RecordBatch) -> None:
        prepared = self._keys.prepare(image.column("key"), None)
        values = image.column("value").to_numpy(zero_copy_only=False)
        if self.size == 0:
            self._keys.reserve_for(prepared)
        self._put(self._cells(prepared), np.ascontiguousarray(values), 1)

    # Reading

    def get(self, keys: Any, hashes: Array | None = None) -> Array:
        """Present values of the keys, 0 for absent ones."""
        cells = self._keys.find(self._keys.prepare(keys, hashes))
        values = np.empty(len(cells), self._values.dtype)
        kernel.values_or_zero(cells, self._values, values)
        return values

    def contains(self, keys: Any, hashes: Array | None = None) -> Array:
        """Whether each key was ever added (boolean array)."""
        present: Array = self._keys.find(self._keys.prepare(keys, hashes)) != kernel.ABSENT
        return present

    def export(self) -> pa.RecordBatch:
        return self._pairs(None, self._values[: self.size].copy())

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        return pa.record_batch([self._keys.take(cells), pa.array(values)], schema=self.spec.pairs_schema)

    @property
    def memory(self) -> int:
        return super().memory + self._keys.memory
