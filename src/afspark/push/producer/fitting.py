"""Rows of any origin made to fit a schema; those that cannot are counted and left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import InputError, first_line

EXAMPLE_LENGTH = 80


@dataclass(frozen=True)
class Rows:
    """Rows that fit, how many ``bad`` ones there were, and an ``example`` of those with the reason."""

    batch: pa.RecordBatch
    bad: int = 0
    example: str = ""
    bytes: int = 0
    """Of the input that was read for it."""


def fit(table: pa.Table, schema: pa.Schema) -> Rows:
    """The columns of ``schema`` by name, cast without loss. InputError if one is missing or of a hopeless type."""
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise InputError(
            f"The input has no column {missing[0]!r}, but {', '.join(map(repr, table.column_names[:20]))}.",
            remedy="The receiver takes these columns: " + ", ".join(schema.names) + ".",
            missing=missing,
        )
    sound = np.ones(table.num_rows, dtype=bool)
    example = ""
    for field in schema:
        bad, reason = _bad_rows(table[field.name], field)
        if len(bad):
            example = example or _example(str(table[field.name][int(bad[0])]), f"column {field.name!r}: {reason}")
            sound[bad] = False
    if not sound.all():
        table = table.filter(pa.array(sound))
    columns = [_cast(table[field.name], field.type) for field in schema]
    return Rows(one_batch(columns, schema), int((~sound).sum()), example)


def refuse_unknown(schema: pa.Schema, known: Sequence[str], what: str) -> None:
    """InputError if the schema names a column that ``what`` cannot give."""
    unknown = [name for name in schema.names if name not in known]
    if unknown:
        raise InputError(
            f"{what} have no {unknown[0]!r}.",
            remedy=f"The receiver may take these columns: {', '.join(known)}.",
            missing=unknown,
        )


def one_batch(columns: Sequence[pa.ChunkedArray], schema: pa.Schema) -> pa.RecordBatch:
    """Columns as one record batch."""
    return pa.RecordBatch.from_arrays(
        [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns],
        schema=schema,
    )


def _bad_rows(column: pa.ChunkedArray, field: pa.Field) -> tuple[np.ndarray[Any, Any], str]:
    bad, reason = np.empty(0, dtype=np.int64), ""
    if not field.nullable and column.null_count:
        bad, reason = np.flatnonzero(column.is_null().to_numpy()), "must not be empty"
    if column.type == field.type:
        return bad, reason
    found, failed = bisect(0, len(column), lambda start, stop: _cast(column[start:stop], field.type))
    return np.union1d(bad, np.array(found, dtype=np.int64)), reason or failed


def bisect(start: int, stop: int, attempt: Callable[[int, int], object]) -> tuple[list[int], str]:
    """The rows with which ``attempt`` fails, found by halves, so that many good rows cost no more than few.

    >>> words = pa.array(["1", "two", "3"])
    >>> bisect(0, 3, lambda start, stop: words[start:stop].cast(pa.int8()))[0]
    [1]
    """
    if start == stop:
        return [], ""
    try:
        attempt(start, stop)
    except pa.ArrowInvalid as error:
        if stop - start == 1:
            return [start], first_line(error)
    else:
        return [], ""
    middle = (start + stop) // 2
    left, first = bisect(start, middle, attempt)
    right, second = bisect(middle, stop, attempt)
    return left + right, first or second


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        if not pa.types.is_string(column.type) or pa.types.is_string(kind):
            raise
        return pc.utf8_trim_whitespace(column).cast(kind)
    except pa.ArrowNotImplementedError as error:
        raise InputError(f"A column of type {column.type} cannot become {kind}.") from error


def _example(value: str, reason: str) -> str:
    return f"{value[:EXAMPLE_LENGTH]!r} ({reason})"
