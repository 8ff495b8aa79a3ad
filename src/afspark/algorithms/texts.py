"""Columns of text: a line a row, or a block of lines a row."""

from __future__ import annotations

import pyarrow as pa

from afspark.algorithms.stream_columns import column_type
from afspark.errors import UsageError

_REMEDY = "Name the column that holds the text."


def text_column(schema: pa.Schema, column: str) -> pa.DataType:
    """The type of a column that holds text; UsageError if it does not, or is not there."""
    kind = column_type(schema, column, _REMEDY)
    if not (is_text(kind) or is_block(kind)):
        raise UsageError(f"Column {column!r} is {kind}, not text.", remedy=_REMEDY, column=column)
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Whether each row is one text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_block(kind: pa.DataType) -> bool:
    """Whether each row is a block of lines."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
