"""The signals by which a user or a supervisor asks a command to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def heeding_stops(handler: Handler) -> Iterator[None]:
    """Ctrl-C and SIGTERM go to ``handler`` in the block; only a main thread can take signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)
