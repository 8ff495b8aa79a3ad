"""Where a stream that is ordered by a column passes the ends of its windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import UsageError


class Punctuator:
    """Cuts batches where ``column`` reaches a multiple of ``every``; a time counts in seconds since 1970.

    >>> at = Punctuator("t", 10)
    >>> list(at.cut(pa.record_batch({"t": [3, 9]}))), [time for _, time in at.cut(pa.record_batch({"t": [9, 31]}))]
    ([(pyarrow.RecordBatch
    t: int64
    ----
    t: [3,9], None)], [30.0, None])
    """

    def __init__(self, column: str, every: float) -> None:
        self._column, self._every = column, every
        self._reached: float | None = None

    def check(self, schema: pa.Schema) -> None:
        """UsageError if the column cannot order a stream."""
        kind = schema.field(self._column).type if self._column in schema.names else None
        types = pa.types
        if kind is None or not (types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind)):
            raise UsageError(
                f"Column {self._column!r} is no number or time of the receiver's.",
                remedy=f"It takes {', '.join(f'{field.name}: {field.type}' for field in schema)}.",
            )

    def cut(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, float | None]]:
        """Pieces of the batch, each with the time to punctuate with after it."""
        windows = np.floor(_seconds(batch[self._column]) / self._every)
        # Nulls and rows that are late belong to no new window.
        reached = np.fmax.accumulate(windows) if len(windows) else windows
        before = np.concatenate([[np.nan if self._reached is None else self._reached], reached[:-1]])
        start = 0
        for place in np.flatnonzero(reached > before):
            yield batch.slice(start, int(place) - start), float(reached[place]) * self._every
            start = int(place)
        yield batch.slice(start), None
        if len(reached) and not np.isnan(reached[-1]):
            self._reached = max(float(reached[-1]), -np.inf if self._reached is None else self._reached)


def _seconds(column: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if pa.types.is_timestamp(column.type):
        column = pc.divide(pc.cast(column, pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()), 1e6)
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
