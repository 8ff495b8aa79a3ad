"""The files that a segment keeps: their names, and how long those stay that belong to a batch. Pure."""

from __future__ import annotations

from urllib.parse import quote

from afspark.numbers import Batch, Step
from afspark.resident.open_folder import is_torn

_REPORT = "report-"
_OUT = "out-"
_STEP = "step-"
NOTE = "note"


def kept_from(last: Batch, covered: Batch | None, before: int) -> Batch:
    """The oldest batch whose outputs are kept after ``last`` was applied, if those from ``before`` on were so far.

    A batch that is applied once more needs the feedback of the one before it.
    """
    return Batch(max(int(before), min(last - 1, last if covered is None else covered)))


def is_swept(name: str, last: Batch, oldest: Batch) -> bool:
    """Whether the file of that name is of a batch that nobody will ask for.

    >>> [is_swept(name, Batch(7), Batch(5)) for name in ("report-5.", "report-6.", "out-4-rows", "out-5-rows", "note")]
    [True, False, True, False, False]
    >>> is_swept("out-8-rows", Batch(7), Batch(5))  # of an attempt that was taken back
    True
    """
    kind = next((one for one in (_REPORT, _OUT, _STEP) if name.startswith(one)), None)
    if kind is None:
        return False
    number, _, _ = name.removeprefix(kind).replace(".", "-").partition("-")
    first, end = {_REPORT: (oldest + 1, last), _OUT: (oldest, last), _STEP: (last + 1, last + 1)}[kind]
    return not first <= int(number) <= end


def kept_batch(name: str) -> Batch | None:
    """The batch of a report or an output; None if the file is something else.

    >>> [kept_batch(name) for name in ("report-5.", "out-12-rows", "note")]
    [5, 12, None]
    """
    kind = next((one for one in (_REPORT, _OUT) if name.startswith(one) and not is_torn(name)), None)
    if kind is None:
        return None
    number, _, _ = name.removeprefix(kind).replace(".", "-").partition("-")
    return Batch(int(number))


def is_kept(name: str) -> bool:
    """Whether a file is missed if somebody removes it; the spool has rules of its own.

    >>> [is_kept(name) for name in ("step-7-2", "note", "step-7-2.tmp", "header", "spool-7-0-x")]
    [True, True, False, False, False]
    """
    return (name == NOTE or name.startswith((_REPORT, _OUT, _STEP))) and not is_torn(name)


def report_name(batch: Batch) -> str:
    return f"{_REPORT}{batch}."


def step_name(batch: Batch, step: Step) -> str:
    return f"{_STEP}{batch}-{step}"


def output_name(batch: Batch, port: str) -> str:
    return f"{_OUT}{batch}-{quote(port, safe='')}"
