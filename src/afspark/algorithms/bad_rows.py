"""Rows with missing or unusable values, which operators can leave out and count themselves, a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from afspark.errors import UsageError
from afspark.model.onbad import SKIP, OnBad
from afspark.model.operator import Share
from afspark.model.states import Numeric

#: Where an operator counts what it left out; exact, because it decides nothing and costs nothing while it is 0.
SKIPPED = "skipped"


def skipped_state() -> Numeric:
    return Numeric(value="int64", exact=True)


def refuse_bad(count: int, what: str, on_bad: OnBad | None, **fields: Any) -> None:
    """UsageError if there are such rows and the operator does not skip them itself. ``what`` says what is wrong."""
    if count and on_bad != SKIP:
        raise UsageError(
            f"{count} row{'s' if count > 1 else ''} {what}.",
            remedy="Mend or filter them, or let them be skipped and counted with on_bad='skip'.",
            rows=count,
            **fields,
        )


def skipped_rows(shares: Sequence[Share]) -> int:
    """How many rows the workers have left out."""
    counts = (share.cells[SKIPPED].column("value").to_numpy().sum() for share in shares if SKIPPED in share.cells)
    return int(sum(counts))
