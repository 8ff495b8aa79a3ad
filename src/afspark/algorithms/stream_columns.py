"""Columns that a stream must have."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from afspark.errors import UsageError


def column_names(what: str, given: Iterable[str]) -> tuple[str, ...]:
    """The names given as ``what``. UsageError for one text in place of a list: its letters are no columns.

    >>> column_names("numeric", ["age"])
    ('age',)
    """
    if isinstance(given, str):
        raise UsageError(
            f"{what} is a list of columns, not the text {given!r}.", remedy=f"Write {what}=({given!r},).", column=given
        )
    return tuple(given)


def column_type(schema: pa.Schema, column: str, remedy: str) -> pa.DataType:
    """The type of a column; UsageError if it is not there."""
    if column not in schema.names:
        raise UsageError(
            f"There is no column {column!r}; the stream has {', '.join(schema.names)}.", remedy=remedy, column=column
        )
    return schema.field(column).type
