"""Programs that are run to see which query they would start: ``start`` ends them instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from afspark.api.writer import StreamWriter

_PLANNED: ContextVar[bool] = ContextVar("planned", default=False)


class PlannedStart(BaseException):
    """A query would be started now. No `Exception`: a program that handles those must not go on."""

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__("a query would be started now")
        self.writer = writer


@contextmanager
def planned_only() -> Iterator[None]:
    """Within it no query is started: whoever tries ends with `PlannedStart`."""
    token = _PLANNED.set(True)
    try:
        yield
    finally:
        _PLANNED.reset(token)


def end_if_planned(writer: StreamWriter) -> None:
    """`PlannedStart` if the program is run only to see what it starts."""
    if _PLANNED.get():
        raise PlannedStart(writer)
