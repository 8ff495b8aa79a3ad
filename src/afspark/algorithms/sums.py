"""Sums by key: of the rows of a batch, before they meet state, and of tables over the shares of all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from afspark.model.operator import Combiner, Share


def summed_rows(columns: Mapping[str, Any], value: str, count: str) -> pa.RecordBatch:
    """Rows that agree in all columns but ``value`` as one: the sum of that, and in the column ``count`` how many there
    were.
    """
    keys = [name for name in columns if name != value]
    sums = pa.table(dict(columns)).group_by(keys, use_threads=False).aggregate([(value, "sum"), (value, "count")])
    table = sums.select([*keys, f"{value}_sum", f"{value}_count"]).rename_columns([*keys, value, count])
    return one_batch(table)


def sums_by_key(shares: Sequence[Share], *states: str) -> pa.Table:
    """``key`` and a column for each of these tables: a row for every key that is in one of them, with 0 where it is
    not.
    """
    parts = []
    for share in shares:
        for state in states:
            cells = share.cells[state]
            kinds = {name: share.cells[name].schema.field("value").type for name in states}
            columns = {name: pa.repeat(pa.scalar(0, kind), cells.num_rows) for name, kind in kinds.items()}
            parts.append(pa.table({"key": cells.column("key"), **columns, state: cells.column("value")}))
    sums = pa.concat_tables(parts).group_by("key", use_threads=False).aggregate([(name, "sum") for name in states])
    return sums.select(["key", *(f"{name}_sum" for name in states)]).rename_columns(["key", *states])


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as one Arrow batch."""
    return pa.concat_batches(table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)])


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
