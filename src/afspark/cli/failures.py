"""Errors as the user sees them: one line, what happened and what to do."""

from __future__ import annotations

from afspark.cluster.spark.foreign_errors import one_line, own_error
from afspark.errors import AfsparkError, AnotherDriver, CheckpointError, UsageError

__all__ = ["CUT_SHORT", "GOES_ON", "one_line", "own_error", "with_hint"]

GOES_ON = "The state is kept: the same command goes on from here."
CUT_SHORT = "Spark was ended before the query: no last snapshot was taken, and nothing is lost."


def with_hint(error: AfsparkError, hint: str) -> AfsparkError:
    """The same error whose remedy ends with ``hint``, unless there is nothing to go on from, or another one goes on."""
    if not isinstance(error, UsageError | AnotherDriver | CheckpointError):
        error.remedy = f"{error.remedy} {hint}".strip()
    return error
