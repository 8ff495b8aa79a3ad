"""Names of columns, as users give them."""

from __future__ import annotations

from collections.abc import Iterable

from afspark.errors import UsageError


def column_names(what: str, given: Iterable[str]) -> tuple[str, ...]:
    """The names given as ``what``. UsageError for one text in place of a list: its letters are no columns.

    >>> column_names("numeric", ["age"])
    ('age',)
    """
    if isinstance(given, str):
        raise UsageError(
            f"{what} is a list of columns, not the text {given!r}.", remedy=f"Write {what}=[{given!r}].", column=given
        )
    return tuple(given)
