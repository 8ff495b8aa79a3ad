"""What the threads of one lane wait for, and its lock."""

from __future__ import annotations

from afspark.push.receiver.threads import Threads
from afspark.push.wire.push_errors import ReceiverStopped

#: how often a waiting call looks whether its caller is still there
GLANCE_SECONDS = 0.1


class LaneSignals:
    """``room``: something was released or logged. ``news``: there is something for a worker. ``work``: something may
    have to be written to the log. All three belong to ``lock``. ``halt``: pauses of the writing thread end.
    """

    def __init__(self, threads: Threads) -> None:
        self.lock = threads.lock()
        self.room = threads.condition(self.lock)
        self.news = threads.condition(self.lock)
        self.work = threads.condition(self.lock)
        self.halt = threads.event()
        self.stopping = False

    def end_waiting(self) -> None:
        """Ends all waiting, now and later. The caller holds the lock."""
        self.stopping = True
        self.halt.set()
        for condition in (self.room, self.news, self.work):
            condition.notify_all()


def stopped() -> ReceiverStopped:
    """What a call that waited in vain ends with."""
    return ReceiverStopped(
        "The receiver stops, or the call was given up.", remedy="Send again what was not acknowledged."
    )
