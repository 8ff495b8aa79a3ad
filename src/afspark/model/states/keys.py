"""The keys of a hash table: numbers 0, 1, 2 ... for keys in order of first appearance.

Keys and hashes are dense append-only arrays; an open-addressing index of uint32 points into them. When the
index is full to five eighths it is rebuilt at twice the size in a new column, whose name carries the
logarithm of its size; that logarithm is published afterwards by one store. A kill in between leaves a column
that the next opening drops.

Every table has a secret of its own, drawn when it is made and kept with it, on which the slots of its index depend:
whoever chooses the keys cannot choose where they go. Backups hold keys alone, so a restored table has another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.kernels import hashing
from afspark.model.kernels import table_kernels as kernel
from afspark.model.kernels.plain_arrays import Array, as_array, as_byte_keys, as_integer_keys, byte_buffers
from afspark.model.states.cells import roomy
from afspark.model.states.columns import Columns
from afspark.model.states.scalars import Scalars, Slot
from afspark.model.states.state import StateFull

MOST_ENTRIES = 2**32 - 1
"""Entry numbers plus one must fit the uint32 index."""
MOST_KEY_BYTES = 2**31 - 1
"""Keys of one share are exported as one Arrow binary column, whose offsets are int32."""

_BITS = range(10, 34)
_ID = np.dtype(np.uint32)

COLUMNS = ("key", "hash", "offset", "heap", *(f"index.{bits}" for bits in _BITS))
"""Suffixes of all columns that keys may have."""


class Keys(ABC):
    """Common part: the index, its growth, the null key, and the removal of the latest keys."""

    TYPE: ClassVar[pa.DataType]

    def __init__(self, columns: Columns, name: str, scalars: Scalars, *, null_key: bool = False) -> None:
        self._columns = columns
        self._name = name
        self._scalars = scalars
        if scalars[Slot.SECRET] == 0:
            scalars[Slot.SECRET] = hashing.new_secret()
        self._secret = hashing.Secret.of(scalars[Slot.SECRET])
        self._null_key = null_key
        bits = scalars[Slot.INDEX_BITS] or _BITS.start
        self._index = self._open_index(bits)
        scalars[Slot.INDEX_BITS] = bits
        self._drop_other_indices(bits)

    def _open_index(self, bits: int) -> Array:
        return self._columns.open(f"{self._name}.index.{bits}", _ID, 1 << bits)[: 1 << bits]

    def _drop_other_indices(self, bits: int) -> None:
        for other in _BITS:
            if other != bits:
                self._columns.drop(f"{self._name}.index.{other}")

    @property
    def _shift(self) -> np.uint64:
        return np.uint64(64 - self._scalars[Slot.INDEX_BITS])

    @property
    def count(self) -> int:
        return self._scalars[Slot.ENTRIES]

    @property
    @abstractmethod
    def capacity(self) -> int:
        """Entries that the arrays have room for."""

    def _room(self) -> int:
        """Entries allowed before something must grow."""
        return min(self.capacity, (len(self._index) >> 3) * 5, MOST_ENTRIES)

    def reserve(self, entries: int) -> None:
        """Makes room for that many entries, so that none of the next insertions has to."""
        if entries > MOST_ENTRIES:
            self._refuse(MOST_ENTRIES, f"more than {MOST_ENTRIES} keys")
        if entries > self.capacity:
            self._grow_entries(min(roomy(entries), MOST_ENTRIES))
        bits = self._scalars[Slot.INDEX_BITS]
        while ((1 << bits) >> 3) * 5 < entries:
            bits += 1
        if bits > self._scalars[Slot.INDEX_BITS]:
            self._rebuild(bits)

    def _rebuild(self, bits: int) -> None:
        self._columns.drop(f"{self._name}.index.{bits}")
        index = self._open_index(bits)
        self._fill(index, np.uint64(64 - bits))
        old = self._scalars[Slot.INDEX_BITS]
        self._scalars[Slot.INDEX_BITS] = bits
        self._index = index
        self._columns.drop(f"{self._name}.index.{old}")

    def _refuse(self, limit: int, what: str) -> None:
        raise StateFull(
            f"Hash table {self._name!r} would hold {what} in one worker's share.",
            remedy="Use more workers, or shorter or fewer keys.",
            state=self._name,
            limit=limit,
        )

    def erase_from(self, entries: int) -> None:
        """Forgets the keys with numbers >= ``entries``; can be repeated."""
        kernel.erase_from(self._index, entries)
        if self._null >= entries:
            self._scalars[Slot.NULL_ENTRY] = 0
        self._scalars[Slot.ENTRIES] = entries

    def reserve_for(self, block: KeyBlock) -> None:
        """Makes room for all keys of the block, as if none were known."""
        self.reserve(self.count + len(block))

    # Null is a key of its own where the table takes it: an entry that the index does not know.

    @property
    def _null(self) -> int:
        """Number of the null key's entry, -1 if there is none."""
        return self._scalars[Slot.NULL_ENTRY] - 1

    def prepare(self, given: Any) -> KeyBlock:
        """User input as something the other methods take; ``UsageError`` if these cannot be keys."""
        if self._null_key and isinstance(given, list | tuple):
            given = pa.array(given, self.TYPE)
        if not self._null_key or not isinstance(given, pa.Array | pa.ChunkedArray) or not given.null_count:
            return self._prepare(given)
        array = as_array(given)
        nulls: Array = array.is_null().to_numpy(zero_copy_only=False)
        there = array.drop_null() if not nulls.all() else pa.array([], self.TYPE)
        block = self._prepare(there)
        return KeyBlock(block.keys, block.data, nulls)

    def locate(self, block: KeyBlock) -> tuple[Array, int]:
        """Entry numbers of the keys, inserting absent ones, and the number of entries then. Does not publish
        that number.
        """
        if block.nulls is None:
            return self._locate(block)
        first = int(block.nulls.argmax()) if self._null < 0 else 0
        before, entries = self._locate(block.there.slice(0, first))
        self._scalars[Slot.ENTRIES] = entries
        if self._null < 0:
            self.reserve(entries + 1)
            self._append_null(entries)
            self._scalars[Slot.NULL_ENTRY] = entries + 1
            self._scalars[Slot.ENTRIES] = entries + 1
        after, entries = self._locate(block.there.slice(first, block.present))
        return block.with_null(np.concatenate([before, after]), self._null), entries

    def find(self, block: KeyBlock) -> Array:
        """Entry numbers of the keys, ``ABSENT`` where there is none."""
        if block.nulls is None:
            return self._find(block)
        return block.with_null(self._find(block.there), self._null if self._null >= 0 else kernel.ABSENT)

    def take(self, ids: Array | None) -> pa.Array:
        """Copies of the keys of some entries (None: of all)."""
        taken = self._take(ids)
        if self._null < 0:
            return taken
        nulls = (np.arange(len(taken)) if ids is None else ids) == self._null
        return pc.if_else(pa.array(nulls), pa.scalar(None, taken.type), taken)

    @abstractmethod
    def _append_null(self, entry: int) -> None:
        """Makes that entry one without a key; there is room for it."""

    @abstractmethod
    def _grow_entries(self, capacity: int) -> None: ...

    @abstractmethod
    def _fill(self, index: Array, shift: np.uint64) -> None: ...

    @abstractmethod
    def _prepare(self, given: Any) -> KeyBlock: ...

    @abstractmethod
    def _locate(self, block: KeyBlock) -> tuple[Array, int]:
        """As `locate`, for a block without null."""

    @abstractmethod
    def _find(self, block: KeyBlock) -> Array:
        """As `find`, for a block without null."""

    @abstractmethod
    def _take(self, ids: Array | None) -> pa.Array:
        """As `take`; what is given for null means nothing."""

    def _with_null_hash(self, hashes: Array, first: int) -> Array:
        if self._null >= first:
            hashes[self._null - first] = hashing.NULL_HASH
        return hashes

    @abstractmethod
    def hashes_from(self, first: int) -> Array:
        """The stable hashes of the entries from number ``first`` on."""

    def hashes_of(self, entries: Array) -> Array:
        """The stable hashes of these entries."""
        hashes = self._hashes_of(entries)
        if self._null >= 0:
            hashes[entries == self._null] = hashing.NULL_HASH
        return hashes

    @abstractmethod
    def _hashes_of(self, entries: Array) -> Array:
        """The same, with anything for the null key."""

    @property
    @abstractmethod
    def memory(self) -> int: ...


class KeyBlock:
    """Prepared keys: integers, or offsets into bytes. Slicing copies nothing.

    ``nulls`` tells which keys of the block are null; the other arrays are then of those that are not.
    """

    def __init__(self, keys: Array, data: Array | None = None, nulls: Array | None = None) -> None:
        self.keys = keys
        self.data = data
        self.nulls = nulls

    def __len__(self) -> int:
        return self.present if self.nulls is None else len(self.nulls)

    @property
    def present(self) -> int:
        """Number of keys that are not null."""
        return len(self.keys) - (self.data is not None)

    @property
    def there(self) -> KeyBlock:
        """The keys that are not null."""
        return KeyBlock(self.keys, self.data)

    def with_null(self, ids: Array, null: Any) -> Array:
        """Entry numbers of all keys, from those that are not null and that of null."""
        every = np.full(len(self), null, _ID)
        every[~self.nulls] = ids  # type: ignore[operator]
        return every

    def slice(self, start: int, stop: int) -> KeyBlock:
        if self.nulls is not None:
            nulls = self.nulls[start:stop]
            first = start - int(np.count_nonzero(self.nulls[:start]))
            part = self.there.slice(first, first + len(nulls) - int(np.count_nonzero(nulls)))
            return KeyBlock(part.keys, part.data, nulls if nulls.any() else None)
        return KeyBlock(self.keys[start : stop + (self.data is not None)], self.data)


class IntegerKeys(Keys):
    """int64 keys. Hashes are not stored: computing one is cheaper than reading it."""

    TYPE: ClassVar[pa.DataType] = pa.int64()

    def __init__(self, columns: Columns, name: str, scalars: Scalars, *, null_key: bool = False) -> None:
        super().__init__(columns, name, scalars, null_key=null_key)
        self._keys = columns.open(f"{name}.key", np.dtype(np.int64), 0)

    @property
    def capacity(self) -> int:
        return len(self._keys)

    def _grow_entries(self, capacity: int) -> None:
        self._keys = self._columns.grow(f"{self._name}.key", capacity)

    def _fill(self, index: Array, shift: np.uint64) -> None:
        kernel.index_integers(self._keys, self.count, index, *self._secret, shift, self._null)

    def _append_null(self, entry: int) -> None:
        self._keys[entry] = 0

    def _prepare(self, given: Any) -> KeyBlock:
        return KeyBlock(as_integer_keys(given))

    def _locate(self, block: KeyBlock) -> tuple[Array, int]:
        ids = np.empty(len(block), _ID)
        position, entries = 0, self.count
        while True:
            position, entries = kernel.locate_integers(
                block.keys, position, self._index, *self._secret, self._shift, self._keys, entries, self._room(), ids
            )
            if position == len(block):
                return ids, entries
            self._scalars[Slot.ENTRIES] = entries
            self.reserve(entries + 1)

    def _find(self, block: KeyBlock) -> Array:
        ids = np.empty(len(block), _ID)
        kernel.find_integers(block.keys, self._index, *self._secret, self._shift, self._keys, ids)
        return ids

    def _take(self, ids: Array | None) -> pa.Array:
        return pa.array(self._keys[: self.count].copy() if ids is None else self._keys[ids])

    def hashes_from(self, first: int) -> Array:
        hashes = np.empty(self.count - first, np.uint64)
        hashing.hash_integers(self._keys[first : self.count], hashes)
        return self._with_null_hash(hashes, first)

    def _hashes_of(self, entries: Array) -> Array:
        hashes = np.empty(len(entries), np.uint64)
        hashing.hash_integers(self._keys[entries], hashes)
        return hashes

    @property
    def memory(self) -> int:
        return self._index.nbytes + self._keys.nbytes


class ByteKeys(Keys):
    """Byte strings, appended to one heap; the offsets are those of an Arrow binary array."""

    TYPE: ClassVar[pa.DataType] = pa.binary()

    def __init__(self, columns: Columns, name: str, scalars: Scalars, *, null_key: bool = False) -> None:
        super().__init__(columns, name, scalars, null_key=null_key)
        self._hashes = columns.open(f"{name}.hash", np.dtype(np.uint64), 0)
        self._offsets = columns.open(f"{name}.offset", np.dtype(np.int32), 1)
        self._heap = columns.open(f"{name}.heap", np.dtype(np.uint8), 0)

    @property
    def capacity(self) -> int:
        return min(len(self._hashes), len(self._offsets) - 1)

    def _grow_entries(self, capacity: int) -> None:
        self._hashes = self._columns.grow(f"{self._name}.hash", capacity)
        self._offsets = self._columns.grow(f"{self._name}.offset", capacity + 1)

    def reserve_bytes(self, length: int) -> None:
        """Makes room for that many key bytes in total."""
        if length > MOST_KEY_BYTES:
            self._refuse(MOST_KEY_BYTES, f"more than {MOST_KEY_BYTES} bytes of keys")
        if length > len(self._heap):
            self._heap = self._columns.grow(f"{self._name}.heap", min(roomy(length), MOST_KEY_BYTES))

    def reserve_for(self, block: KeyBlock) -> None:
        super().reserve_for(block)
        self.reserve_bytes(int(self._offsets[self.count]) + int(block.keys[-1] - block.keys[0]))

    def _fill(self, index: Array, shift: np.uint64) -> None:
        kernel.index_hashes(self._hashes, self.count, index, self._secret.factor, shift, self._null)

    def _append_null(self, entry: int) -> None:
        self._hashes[entry] = hashing.NULL_HASH
        self._offsets[entry + 1] = self._offsets[entry]

    def _prepare(self, given: Any) -> KeyBlock:
        return KeyBlock(*byte_buffers(as_byte_keys(given)))

    @property
    def _table(self) -> tuple[Any, ...]:
        """Index and entries, as kernels take them; not to be kept while anything grows."""
        return self._index, self._secret.factor, self._shift, self._hashes, self._offsets, self._heap

    def _hashed(self, block: KeyBlock) -> Array:
        hashes = np.empty(len(block), np.uint64)
        kernel.secret_spans(block.keys, block.data, *self._secret, hashes)
        return hashes

    def _locate(self, block: KeyBlock) -> tuple[Array, int]:
        ids = np.empty(len(block), _ID)
        hashes = self._hashed(block)
        position, entries = 0, self.count
        while True:
            position, entries = kernel.locate_bytes(
                block.keys, block.data, hashes, position, *self._table, entries, self._room(), ids
            )
            if position == len(block):
                return ids, entries
            self._scalars[Slot.ENTRIES] = entries
            self.reserve(entries + 1)
            self.reserve_bytes(int(self._offsets[entries]) + int(block.keys[position + 1] - block.keys[position]))

    def _find(self, block: KeyBlock) -> Array:
        ids = np.empty(len(block), _ID)
        kernel.find_bytes(block.keys, block.data, self._hashed(block), *self._table, ids)
        return ids

    def _take(self, ids: Array | None) -> pa.Array:
        if ids is None:
            count = self.count
            offsets = self._offsets[: count + 1].copy()
            data = self._heap[: offsets[count]].copy()
        else:
            count = len(ids)
            offsets = np.empty(count + 1, np.int32)
            data = np.empty(kernel.gather_offsets(ids, self._offsets, offsets), np.uint8)
            kernel.gather_bytes(ids, self._offsets, self._heap, offsets, data)
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])

    def hashes_from(self, first: int) -> Array:
        hashes = np.empty(self.count - first, np.uint64)
        hashing.hash_spans(self._offsets[first : self.count + 1], self._heap, hashes)
        return self._with_null_hash(hashes, first)

    def _hashes_of(self, entries: Array) -> Array:
        hashes = np.empty(len(entries), np.uint64)
        kernel.hash_entries(entries, self._offsets, self._heap, hashes)
        return hashes

    @property
    def memory(self) -> int:
        return sum(array.nbytes for array in (self._index, self._hashes, self._offsets, self._heap))
