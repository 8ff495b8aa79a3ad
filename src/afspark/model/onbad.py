"""What is to happen to bad items: those that an operator, or a step or combiner before it, raises on."""

from __future__ import annotations

from typing import Literal

from afspark.errors import UsageError

#: "skip" leaves them out, counts them and keeps them in quarantine; "stop" ends the query and names the first.
OnBad = Literal["skip", "stop"]
SKIP: OnBad = "skip"
STOP: OnBad = "stop"
#: How many items of one batch a worker may find bad one by one.
BAD_LIMIT = 1_000


def check_on_bad(choice: str) -> OnBad:
    """``choice`` if it is one; UsageError if not."""
    for known in (SKIP, STOP):
        if choice == known:
            return known
    raise UsageError(f"on_bad is {choice!r}.", remedy=f"Use {SKIP!r} or {STOP!r}.", on_bad=choice)
