"""Times of items as seconds: from numbers, timestamps, and texts that hold either."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from afspark.algorithms.stream_columns import column_type
from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import as_array

_NUMBER = r"^[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t]*$"
_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_LOCAL = rf"^{_DAY}([T ]{_CLOCK})?$"
_ZONED = rf"^{_DAY}[T ]{_CLOCK}(Z|[-+][0-9]{{2}}(:?[0-9]{{2}})?)$"


def check_time(schema: pa.Schema, column: str) -> None:
    """UsageError if the column is not there or cannot hold times."""
    kind = column_type(schema, column, "Name the column that holds the time of an item.")
    timely = pat.is_timestamp(kind) or pat.is_date(kind)
    if not (
        timely or pat.is_integer(kind) or pat.is_floating(kind) or pat.is_string(kind) or pat.is_large_string(kind)
    ):
        raise UsageError(
            f"Column {column!r} is {kind}, which is no time.",
            remedy="Use seconds, timestamps, or text such as 2014-09-01T12:00:00Z.",
            column=column,
        )


def seconds_of(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Seconds as float64, null where there is no time: numbers are seconds, timestamps and dates count from 1970, and
    texts hold a number or a time after ISO 8601, in UTC unless they name a zone.

    >>> seconds_of(pa.array(["12.5", "1970-01-02", "1970-01-01T01:00:00+01:00", "soon"])).to_pylist()
    [12.5, 86400.0, 0.0, None]
    """
    times = as_array(column)
    if pat.is_string(times.type) or pat.is_large_string(times.type):
        return _of_texts(times)
    if pat.is_timestamp(times.type) or pat.is_date(times.type):
        return _since_1970(times)
    seconds = times.cast(pa.float64(), safe=False)
    return pc.if_else(pc.is_finite(seconds), seconds, None)


def _of_texts(texts: pa.Array) -> pa.Array:
    numbers, local, zoned = (pc.match_substring_regex(texts, pattern) for pattern in (_NUMBER, _LOCAL, _ZONED))
    found = pc.utf8_trim_whitespace(pc.if_else(numbers, texts, None)).cast(pa.float64())
    found = pc.if_else(pc.is_finite(found), found, None)
    for chosen, kind in ((local, pa.timestamp("us")), (zoned, pa.timestamp("us", "UTC"))):
        if pc.any(chosen).as_py():
            found = pc.coalesce(found, _since_1970(pc.if_else(chosen, texts, None).cast(kind)))
    return found


def _since_1970(times: pa.Array) -> pa.Array:
    micros = times.cast(pa.timestamp("us")).view(pa.int64())
    values = micros.fill_null(0).to_numpy(zero_copy_only=False) / 1e6
    return pa.array(values, mask=micros.is_null().to_numpy(zero_copy_only=False) if micros.null_count else None)


def whole_numbers(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of identifiers as int64, null where it is no whole number."""
    numbers = as_array(column)
    if pat.is_integer(numbers.type):
        return numbers.cast(pa.int64(), safe=False)
    values = numbers.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    sound = np.isfinite(values) & (np.abs(values) < 2.0**53) & (np.floor(values) == values)
    return pa.array(np.where(sound, values, 0.0).astype(np.int64), mask=~sound)
