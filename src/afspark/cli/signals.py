"""The signals by which a user or a supervisor asks a command to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class StopSignal(KeyboardInterrupt):
    """A stop that no query has heard of: there was none, or it had ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


def stop_at_once(number: int, frame: FrameType | None) -> None:
    """Ends whatever goes on, with all that it would leave behind."""
    # py4j would tell with a trace which call was cut short.
    logging.disable(logging.CRITICAL)
    raise StopSignal(number)


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
