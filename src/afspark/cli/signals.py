"""The signals by which a user or a supervisor asks a command to stop."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from types import FrameType

from afspark.api.stop_signals import Handler, heeding


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


def heeding_stops(handler: Handler) -> AbstractContextManager[None]:
    """Ctrl-C and SIGTERM go to ``handler`` in the block; only a main thread can take signals."""
    return heeding(handler)
