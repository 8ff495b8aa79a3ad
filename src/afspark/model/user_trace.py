"""Tracebacks as the author of an operator wants to read them: their own files, and nothing of the engine's."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import traceback
from functools import cache
from types import TracebackType

_OURS = ("afspark",)
_ENGINE = (*_OURS, "pyspark", "py4j")
#: libraries that the engine calls itself: frames of theirs alone are no user's
_CALLED_BY_US = ("pyarrow", "numpy", "numba")


def user_trace(error: BaseException) -> str:
    """The traceback of ``error`` without the frames of afspark and Spark; "" if no code of a user's is in it."""
    if not any(is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
        return ""
    shown = traceback.TracebackException.from_exception(error)
    _strip(shown)
    return "".join(shown.format())


def user_frames(trace: TracebackType | None) -> TracebackType | None:
    """The same chain of frames without those of afspark and Spark."""
    if trace is None:
        return None
    rest = user_frames(trace.tb_next)
    if is_engines(trace.tb_frame.f_code.co_filename):
        return rest
    return TracebackType(rest, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def place_of_code(code: object) -> str:
    """Where a function or class of a user's is written, for an error: `` (count.py, line 3)``; "" if unknown."""
    found = getattr(code, "__code__", None)
    return f" ({os.path.basename(found.co_filename)}, line {found.co_firstlineno})" if found is not None else ""


def is_engines(file: str) -> bool:
    """Whether a file belongs to afspark, to Spark, or to the way there."""
    return file.startswith(_folders(_ENGINE))


def is_ours(file: str) -> bool:
    """Whether a file belongs to afspark."""
    return file.startswith(_folders(_OURS))


def is_users(file: str) -> bool:
    """Whether a file is neither the engine's nor of something that the engine calls by itself."""
    if is_engines(file) or file.startswith(("<frozen ", *_folders(_CALLED_BY_US))):
        return False
    standard = sysconfig.get_paths()["stdlib"] + os.sep
    return not file.startswith(standard) or "-packages" + os.sep in file


@cache
def _folders(packages: tuple[str, ...]) -> tuple[str, ...]:
    specs = (importlib.util.find_spec(name) for name in packages)
    return tuple(os.path.dirname(spec.origin) + os.sep for spec in specs if spec is not None and spec.origin)


def _strip(shown: traceback.TracebackException) -> None:
    """Takes the engine's frames out of an error and of all that it came from."""
    shown.stack[:] = [frame for frame in shown.stack if not is_engines(frame.filename)]
    for before in (shown.__cause__, shown.__context__):
        if before is not None:
            _strip(before)
