"""Digests of what a batch has made: of changed cells, and of rows for others.

They do not depend on the order of cells or rows, because a restored table has its cells in another order. Floats are
summed up and compared with room for rounding, because sums may be built up in another order. They tell apart what an
operator does from what it did, not what somebody has forged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from afspark.errors import UsageError
from afspark.model.kernels import digest_kernels as kernel
from afspark.model.kernels.hashing import GOLDEN, column_words, hash_bytes, hash_columns

#: What floats may differ by, as a part of the sum of their sizes.
ROUNDING = 1e-9

_ALL = 2**64

#: How many rows are hashed at once: what is in between stays in the processor's caches.
_BLOCK = 2**16

#: So many columns are digested in one pass; every number of columns is compiled for itself.
_FUSED = 4


@dataclass(frozen=True)
class EffectDigest:
    """``count`` cells or rows: ``exact`` is the sum of hashes of what must be equal, ``floats`` are weighted sums of
    numbers whose sizes add up to ``size``.
    """

    count: int = 0
    exact: int = 0
    floats: tuple[float, ...] = ()
    size: float = 0.0

    def agrees(self, other: EffectDigest) -> bool:
        """Whether both can be digests of the same.

        >>> EffectDigest(2, 7, (0.1 + 0.2,), 0.3).agrees(EffectDigest(2, 7, (0.3,), 0.3))
        True
        >>> EffectDigest(2, 7).agrees(EffectDigest(2, 8))
        False
        """
        room = ROUNDING * max(self.size, other.size)
        return (self.count, self.exact, len(self.floats)) == (other.count, other.exact, len(other.floats)) and all(
            math.isclose(one, another, rel_tol=ROUNDING, abs_tol=room)
            for one, another in zip(self.floats, other.floats, strict=True)
        )

    def and_also(self, other: EffectDigest) -> EffectDigest:
        """The digest of both together."""
        floats = [0.0] * max(len(self.floats), len(other.floats))
        for digest in (self, other):
            for place, number in enumerate(digest.floats):
                floats[place] += number
        return EffectDigest(
            self.count + other.count, (self.exact + other.exact) % _ALL, tuple(floats), self.size + other.size
        )

    def within(self, label: str) -> EffectDigest:
        """The digest as a part of something larger, where what has another label must not pass for it."""
        return replace(self, exact=self.exact * (2 * int(hash_of(label)) + 1) % _ALL)

    def to_json(self) -> list[Any]:
        return [self.count, f"{self.exact:x}", list(self.floats), self.size]

    @classmethod
    def from_json(cls, found: list[Any]) -> EffectDigest:
        count, exact, floats, size = found
        return cls(count, int(exact, 16), tuple(floats), size)


def hash_of(text: str) -> np.uint64:
    """A number of 64 bits."""
    data = np.frombuffer(text.encode(), np.uint8)
    return np.uint64(hash_bytes(data, 0, len(data)))


def digest_of_rows(parts: Iterable[tuple[Any, pa.RecordBatch]]) -> EffectDigest:
    """The digest of record batches of any schemas, each with a label that all of its rows have.

    >>> one = pa.record_batch({"key": ["a", "b"], "value": [0.1, 0.2]})
    >>> two = pa.record_batch({"key": ["b", "a"], "value": [0.2, 0.1]})
    >>> digest_of_rows([(0, one)]).agrees(digest_of_rows([(0, two)]))
    True
    """
    total = EffectDigest()
    for label, batch in parts:
        columns = _columns(batch.schema)
        hashed = hash_of(repr((label, batch.schema.names)))
        for start in range(0, batch.num_rows, _BLOCK):
            total = total.and_also(_of_block(batch.slice(start, _BLOCK), columns, hashed))
    return total


@dataclass(frozen=True)
class _Columns:
    """The columns of a schema by what is done with them: ``keys`` are hashed, ``numbers`` are summed up."""

    keys: tuple[str, ...]
    numbers: tuple[str, ...]


@lru_cache(maxsize=256)
def _columns(schema: pa.Schema) -> _Columns:
    numbers = tuple(field.name for field in schema if pat.is_floating(field.type))
    return _Columns(tuple(one.name for one in schema if one.name not in numbers and _is_hashable(one.type)), numbers)


def _of_block(batch: pa.RecordBatch, columns: _Columns, hashed: np.uint64) -> EffectDigest:
    words = tuple(column_words(batch, column) for column in columns.keys)
    if 0 < len(words) <= _FUSED and not columns.numbers:
        return EffectDigest(batch.num_rows, int(kernel.digest_word_rows(words, hashed)))
    hashes = np.full(batch.num_rows, GOLDEN)
    for column in words:
        kernel.fold_words(hashes, column)
    exact, size, sums = int(kernel.digest_rows(hashes, hashed)), 0.0, []
    for name in columns.numbers:
        values = batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
        total, sizes, odd = kernel.weighted_sum(hashes, np.ascontiguousarray(values))
        sums.append(float(total))
        size += float(sizes)
        exact = (exact + odd) % _ALL
    return EffectDigest(batch.num_rows, exact, tuple(sums), size)


def _is_hashable(kind: pa.DataType) -> bool:
    """Whether the values of a column can be told apart cheaply; of others only the number of rows is known."""
    try:
        hash_columns(pa.record_batch({"column": pa.array([], kind)}), ["column"])
    except UsageError:
        return False
    return True
