"""Programs that are run to see which query they would start: ``start`` ends them instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from afspark.api.writer import StreamWriter

_asked: list[list[StreamWriter]] = []
#: threads that a program has left behind
_barred: WeakSet[threading.Thread] = WeakSet()


class PlannedStart(SystemExit):
    """A query would be started now. No `Exception`: a program that handles those must not go on. A thread of it ends
    without a word.
    """

    def __init__(self, writer: StreamWriter) -> None:
        super().__init__("a query would be started now")
        self.writer = writer


@contextmanager
def planned_only() -> Iterator[list[StreamWriter]]:
    """Within it no query is started, in whatever thread: whoever tries ends with `PlannedStart`, and is in the list
    that this gives. Threads that are begun meanwhile start none later either.
    """
    asked: list[StreamWriter] = []
    before = set(threading.enumerate())
    _asked.append(asked)
    try:
        yield asked
    finally:
        _asked.remove(asked)
        _barred.update(set(threading.enumerate()) - before)


def end_if_planned(writer: StreamWriter) -> None:
    """`PlannedStart` if the program is run only to see what it starts."""
    if _asked:
        _asked[-1].append(writer)
    if _asked or threading.current_thread() in _barred:
        raise PlannedStart(writer)
