"""Which sessions of producers a lane's worker lists in its positions, and which it need not list any more. Pure.

Every session is listed by the worker of every lane, in the order in which sessions began, also one that has sent
nothing there yet. Among the positions is, for each start of a receiver, how many of its sessions were listed, under the
start's own name. So a session that is not listed, although its number is below that, is over: it has ended, or it was
away for so long that it was forgotten. Nothing of it is taken any more, hence nothing of it is counted twice.

A receiver that dies takes the last part of the count with it. Of the sessions above it that the worker has not listed
nobody knows, so those that it has listed stay listed, as do sessions that went away without a good-bye: up to a number.
"""

from __future__ import annotations

from collections.abc import Container
from itertools import takewhile

from afspark.push.receiver.sessions import start_and_number
from afspark.push.wire.messages import Positions
from afspark.push.wire.push_errors import SessionOver

#: sessions that are not at work and are still recognised, by lane, besides as many as a receiver may have at work
KEPT_AWAY = 1000
#: starts of receivers whose sessions are still recognised
KEPT_STARTS = 64


def start_name(start: int) -> str:
    """How a receiver's start is called among the positions; no producer can be called like that."""
    return f"/{start:08x}"


def is_receiver_start(name: str) -> bool:
    return name.startswith("/")


class Listing:
    """The positions that are ``confirmed`` on a lane, and what is known of their sessions.

    ``start``: the number of the receiver's start. ``listed``: the positions of a record, of use until a worker
    attaches. ``keep``: how many sessions that are not at work are recognised; after a receiver's death that is all of
    them at first.
    """

    def __init__(self, start: int = 0, listed: Positions | None = None, keep: int = KEPT_AWAY) -> None:
        self.confirmed: dict[str, int] = {}
        self._start, self._listed, self._keep = start, listed or {}, keep
        #: sessions that are neither listed nor over, in the order in which they began
        self._begun: dict[str, None] = {}
        self._newest = ""
        #: what the positions need not hold any more; True for sessions that said good-bye
        self._over: dict[str, bool] = {}

    def open(self, producer: str, *, begins: bool) -> bool:
        """Whether the worker has to be told of a session, which may send from now on.

        ``begins``: the session was named by this receiver just now, after all others.
        """
        self._over.pop(producer, None)
        if begins:
            self._begun[producer] = None
            self._newest = producer
        return not self._knows(producer)

    def advance(self) -> None:
        """Counts sessions up to the first that is not listed: positions were confirmed, or a session has ended."""
        for producer in list(takewhile(self.confirmed.__contains__, self._begun)):
            del self._begun[producer]
            self._count(producer)
        if not self._begun:
            self._count(self._newest)

    def is_over(self, producer: str) -> bool:
        """Whether a session that is not at work here is over."""
        if producer in self._over:
            return self._over[producer]
        number = start_and_number(producer)
        if number is None or self._knows(producer):
            return False
        if number[0] == self._start:
            return True
        starts = self._starts()
        return self._is_counted(producer) or (len(starts) >= KEPT_STARTS and start_name(number[0]) < starts[0])

    def check(self, producer: str) -> None:
        """`SessionOver` if nothing of a session that the lane has nothing of may be taken any more."""
        if self.is_over(producer):
            raise SessionOver(
                f"The session of producer {producer} is over: it has ended, or was away for too long.",
                remedy="Begin a new session; of what this one had under way unacknowledged, some may have been taken.",
                producer=producer,
            )

    def end(self, producer: str) -> None:
        """A session said good-bye, and nothing of it is left here. One that no worker has listed never will be."""
        if producer in self.confirmed:
            self._over[producer] = True
        else:
            self._begun.pop(producer, None)
            self.advance()

    def forgettable(self, positions: Positions, present: Container[str]) -> list[str]:
        """Which of the positions need not be kept; ``present``: the sessions that the lane has."""
        away = [
            name for name in self.confirmed if not (is_receiver_start(name) or name in present or self._is_done(name))
        ]
        for producer in away[: max(0, len(away) - self._keep)]:
            self._over.setdefault(producer, False)
            self._count(producer)
        old = self._starts()[:-KEPT_STARTS]
        return [name for name in positions if self._is_done(name) or name in old]

    def forget(self, positions: Positions) -> None:
        """A worker begins with these positions: what they have dropped is dropped here."""
        self._listed = {}
        for name in (*self._over, *self._starts()[:-KEPT_STARTS]):
            if name not in positions:
                self._over.pop(name, None)
                self.confirmed.pop(name, None)

    @property
    def starts(self) -> dict[str, int]:
        """How many sessions of each start were listed."""
        return {name: self.confirmed[name] for name in self._starts()[-KEPT_STARTS:]}

    def _knows(self, producer: str) -> bool:
        return producer in self.confirmed or producer in self._listed

    def _starts(self) -> list[str]:
        return sorted(filter(is_receiver_start, self.confirmed))

    def _count(self, producer: str) -> None:
        """Counts the session: those of its start up to this one are over from now on if they are not listed."""
        if (number := start_and_number(producer)) is not None:
            name = start_name(number[0])
            self.confirmed[name] = max(number[1] + 1, self.confirmed.get(name, 0))

    def _is_counted(self, producer: str) -> bool:
        number = start_and_number(producer)
        if number is None:
            return True
        name = start_name(number[0])
        return number[1] < max(self.confirmed.get(name, 0), self._listed.get(name, 0))

    def _is_done(self, producer: str) -> bool:
        """Whether it would be known to be over without being listed."""
        return producer in self._over and self._is_counted(producer)
