"""Sums by key: of the rows of a batch, before they meet state, and of tables over the shares of all workers.

Arrow's own aggregation wants buffers that begin at multiples of their values' size, which those of parcels do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.kernels.plain_arrays import Array, as_array
from afspark.model.operator import Combiner, Share


@dataclass(frozen=True)
class Groups:
    """Rows that agree in some columns: the position of each group's ``first`` row, and the group of every row."""

    first: Array
    number: Array

    @classmethod
    def of(cls, *columns: pa.Array | pa.ChunkedArray) -> Groups:
        """The groups of rows that agree in all columns, numbered as they appear; nulls are equal."""
        number, count = _numbered(columns[0])
        for column in columns[1:]:
            other, others = _numbered(column)
            number, count = _numbered(pa.array(number * others + other))
        first = np.zeros(count, np.int64)
        first[number[::-1]] = np.arange(len(number))[::-1]
        return cls(first, number)

    def sums(self, values: Array) -> Array:
        """The sum of each group, of the type of the values; whole numbers up to 2**53 are exact."""
        return np.bincount(self.number, values, len(self.first)).astype(values.dtype)

    @property
    def sizes(self) -> Array:
        return np.bincount(self.number, minlength=len(self.first))

    def least(self, values: Array) -> Array:
        """The least value of each group."""
        found = values[self.first]
        np.minimum.at(found, self.number, values)
        return found


def summed_rows(columns: Mapping[str, Any], value: str, count: str) -> pa.RecordBatch:
    """Rows that agree in all columns but ``value`` as one: the sum of that, and in the column ``count`` how many there
    were.
    """
    keys = {name: column for name, column in columns.items() if name != value}
    groups = Groups.of(*keys.values())
    one_of_each = {name: as_array(column).take(pa.array(groups.first)) for name, column in keys.items()}
    sums = groups.sums(columns[value])
    return pa.record_batch({**one_of_each, value: pa.array(sums), count: pa.array(groups.sizes)})


def sums_by_key(shares: Sequence[Share], *states: str) -> pa.Table:
    """``key`` and a column for each of these tables, in order: a row for every key that is in one of them, with 0
    where it is not.
    """
    cells = [[share.cells[state] for share in shares] for state in states]
    keys = pa.concat_arrays([batch.column("key") for batches in cells for batch in batches])
    groups, start = Groups.of(keys), 0
    columns: dict[str, Array] = {}
    for state, batches in zip(states, cells, strict=True):
        values = np.concatenate([batch.column("value").to_numpy(zero_copy_only=False) for batch in batches])
        padded = np.zeros(len(keys), values.dtype)
        padded[start : start + len(values)] = values
        columns[state], start = groups.sums(padded), start + len(values)
    order = pc.sort_indices(keys.take(pa.array(groups.first)))
    chosen = keys.take(pa.array(groups.first)).take(order)
    return pa.table({"key": chosen, **{name: sums[order.to_numpy()] for name, sums in columns.items()}})


class Summing(Combiner):
    """Leaves of a worker's share of a batch what a function makes of its Arrow batches."""

    def __init__(self, summed: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self._summed, self.items = summed, 0
        self._parts: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self.items += batch.num_rows
        self._parts.append(self._summed(batch))

    def finish(self) -> pa.RecordBatch | None:
        return pa.concat_batches(self._parts) if self._parts else None


def _numbered(column: pa.Array | pa.ChunkedArray) -> tuple[Array, int]:
    """A number for each different value, as they appear, and how many there are."""
    encoded = as_array(column).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)
