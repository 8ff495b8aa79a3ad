"""What errors of Spark, Java and py4j say, without the pages that they come with."""

from __future__ import annotations

import re

from afspark import errors
from afspark.errors import AfsparkError

# How Spark quotes an error that one of its Python processes raised.
_QUOTED = re.compile(r"^(?:.*\s)?afspark\.errors\.(\w+): (.+)$", re.MULTILINE)
_LONGEST = 400
_TRACE = "Traceback (most recent call last):"
_CAUSE = re.compile(r"^(?:: |Caused by: )(?:[a-z][\w$]*\.)*([A-Z][\w$]*: .+)$", re.MULTILINE)
_HEAD = re.compile(r"^\[[A-Z_.]+\] Query \[.*?\] terminated with exception: ")
_SLOW = "Python worker failed to connect back."
_CODES = re.compile(r"\[[A-Z_.]+\] | SQLSTATE: \w+;?")


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


def is_sparks(error: BaseException) -> bool:
    """Whether an error comes out of Spark, or of the way there."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def what_spark_says(text: str) -> str:
    """The line of an error of Spark's that tells: the last of a Python process, the first cause in Java, or its own.

    >>> what_spark_says("An error occurred while calling o1.start.\\n: a.b.IOException: no room\\n\\tat a.b.C(D)")
    'IOException: no room'
    >>> what_spark_says(": a.b.SparkError: [BAD] No source x.\\nCaused by: ClassNotFoundException: x")
    'SparkError: No source x.'
    >>> what_spark_says("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [BAD] Lost. SQLSTATE: XX")
    'Lost.'
    """
    if _TRACE in text:
        raised = [line for line in text.rsplit(_TRACE, 1)[1].splitlines() if line and not line.startswith((" ", "\t"))]
        if raised:
            return _short(raised[0])
    causes = _CAUSE.findall(text)
    # That a class is missing says less than what Spark wanted it for.
    causes = [one for one in causes if not one.startswith("ClassNotFoundException: ")] or causes
    if causes:
        return _short(_CODES.sub("", causes[-1]))
    first = text.strip().split("\n", 1)[0]
    said = _short(_CODES.sub("", _HEAD.sub("", first)))
    if said == _SLOW:
        said += " Spark waits ten seconds for a Python process to start, which can be too short on a busy"
        said += " machine: start again."
    return said


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else f"{plain[:_LONGEST]}…"
