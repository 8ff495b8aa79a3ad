"""Errors as the user sees them: one line, what happened and what to do."""

from __future__ import annotations

import re

from afspark import errors
from afspark.cli.foreign_errors import is_sparks, what_spark_says
from afspark.errors import AfsparkError, AnotherDriver, CheckpointError, UsageError

GOES_ON = "The state is kept: the same command goes on from here."
CUT_SHORT = "Spark was ended before the query: no last snapshot was taken, and nothing is lost."

# How Spark quotes an error that one of its Python processes raised.
_QUOTED = re.compile(r"^(?:.*\s)?afspark\.errors\.(\w+): (.+)$", re.MULTILINE)


def own_error(error: BaseException) -> AfsparkError | None:
    """The error of ours that Spark wrapped into text of its own; None if there is none in it.

    >>> own_error(RuntimeError("Traceback …\\nafspark.errors.InputError: File 'a' is damaged."))
    InputError("File 'a' is damaged.")
    """
    if isinstance(error, AfsparkError):
        return error
    quoted = _QUOTED.search(str(error))
    kind = getattr(errors, quoted[1], None) if quoted else None
    if quoted is None or not (isinstance(kind, type) and issubclass(kind, AfsparkError)):
        return None
    return kind(quoted[2].strip())


def with_hint(error: AfsparkError, hint: str) -> AfsparkError:
    """The same error whose remedy ends with ``hint``, unless there is nothing to go on from, or another one goes on."""
    if not isinstance(error, UsageError | AnotherDriver | CheckpointError):
        error.remedy = f"{error.remedy} {hint}".strip()
    return error


def one_line(error: BaseException) -> str:
    """The error as ``afspark: error: …`` without line breaks."""
    own = own_error(error)
    if own is not None:
        text = str(own)
    elif is_sparks(error):
        text = f"Spark has failed: {what_spark_says(str(error))}"
    else:
        text = f"{type(error).__name__}: {error}".split("\n", 1)[0]
    return f"afspark: error: {' '.join(text.split())}"
