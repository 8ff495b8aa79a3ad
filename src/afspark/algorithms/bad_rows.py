"""Rows with missing or unusable values: left out and counted, or the end of the query, as the user chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from afspark.errors import UsageError
from afspark.model.operator import Share
from afspark.model.states import Numeric

OnBad = Literal["skip", "stop"]
ON_BAD: tuple[OnBad, ...] = ("skip", "stop")

#: Where an operator counts what it left out; exact, because it decides nothing and costs nothing while it is 0.
SKIPPED = "skipped"


def check_on_bad(choice: str) -> OnBad:
    """``choice`` if it is one; UsageError if not."""
    for known in ON_BAD:
        if choice == known:
            return known
    raise UsageError(f"on_bad is {choice!r}.", remedy=f"Use {' or '.join(map(repr, ON_BAD))}.", on_bad=choice)


def skipped_state() -> Numeric:
    return Numeric(value="int64", exact=True)


def refuse_bad(count: int, what: str, on_bad: OnBad, **fields: Any) -> None:
    """UsageError if there are such rows and they are to stop the query. ``what`` says what is wrong with them."""
    if count and on_bad == "stop":
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
