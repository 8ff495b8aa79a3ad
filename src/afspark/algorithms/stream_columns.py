"""Columns that a stream must have."""

from __future__ import annotations

import pyarrow as pa

from afspark.errors import UsageError


def column_type(schema: pa.Schema, column: str, remedy: str) -> pa.DataType:
    """The type of a column; UsageError if it is not there."""
    if column not in schema.names:
        raise UsageError(
            f"There is no column {column!r}; the stream has {', '.join(schema.names)}.", remedy=remedy, column=column
        )
    return schema.field(column).type
