"""The thread that owns a producer's connection: it connects, sends what is queued, and connects again."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from afspark.errors import AfsparkError
from afspark.push.latency import Latencies
from afspark.push.producer.link import CALL_SECONDS, Dial, PutConnection, found_by, may_pass, why_away
from afspark.push.producer.unacked import Piece, Unacked
from afspark.push.wire.messages import BYE, HELLO, Ack, Bye, Done, Ends, Hello, PutHeader, Receipts, Welcome
from afspark.push.wire.push_errors import PushError, ReceiverUnreachable, SessionOver, UnknownSession

PAUSES = (0.05, 2.0)
"""Seconds before the second and before late attempts to connect."""


@dataclass
class Outgoing:
    """What a producer's calls and its connection share; whoever reads or changes it holds ``changed``."""

    header: PutHeader
    #: γ as the user wants it, and as it is in force
    own_limit: float
    limit: float = field(init=False)
    changed: threading.Condition = field(default_factory=threading.Condition)
    unacked: Unacked = field(default_factory=Unacked)
    queue: deque[Piece] = field(default_factory=deque)
    welcome: Welcome | None = None
    failure: AfsparkError | None = None
    away_since: float | None = field(default_factory=time.monotonic)
    closing: bool = False
    aborted: bool = False
    done: bool = False
    sent: int = 0
    acknowledged: int = 0
    resent: int = 0
    bytes: int = 0
    reconnects: int = 0
    latencies: Latencies = field(default_factory=Latencies)

    def __post_init__(self) -> None:
        self.limit = self.own_limit

    @property
    def finished(self) -> bool:
        return self.closing and not self.unacked.items

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()


class ProducerConnection(threading.Thread):
    """Sends what is ``outgoing`` until the producer is over, or the receiver was away for ``give_up`` seconds."""

    def __init__(self, dial: Dial, schema: pa.Schema, outgoing: Outgoing, give_up: float | None) -> None:
        super().__init__(name=f"afspark-producer-{outgoing.header.producer}", daemon=True)
        self._dial, self._schema, self._shared, self._give_up = dial, schema, outgoing, give_up

    def run(self) -> None:
        pause = PAUSES[0]
        while True:
            try:
                self._connected()
                break
            except AfsparkError as error:
                told = error
                if self._begins_anew(told):
                    continue
            except Exception as error:  # noqa: BLE001 - a thread that dies silently would hang its callers
                told = PushError(f"{type(error).__name__}: {error}")
            with self._shared.changed:
                if self._shared.aborted or self._gives_up(told):
                    break
                if self._shared.away_since is None:
                    self._shared.away_since, pause = time.monotonic(), PAUSES[0]
                # Not all producers of a receiver that comes back at the same moment.
                self._shared.changed.wait_for(lambda: self._shared.aborted, pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, PAUSES[1])
        with self._shared.changed:
            self._shared.done = True
            self._shared.changed.notify_all()

    def _begins_anew(self, error: AfsparkError) -> bool:
        """Whether nothing can be counted twice if another session goes on with what is unacknowledged."""
        with self._shared.changed:
            # Another query has got nothing of it, and nobody what was never sent.
            fresh = isinstance(error, SessionOver) and not self._shared.unacked.written
            if not (isinstance(error, UnknownSession) or fresh):
                return False
            self._shared.header = replace(self._shared.header, session="")
            self._shared.unacked = self._shared.unacked.renumbered()
            return True

    def _gives_up(self, error: AfsparkError) -> bool:
        away = 0.0 if self._shared.away_since is None else time.monotonic() - self._shared.away_since
        if may_pass(error) and (self._give_up is None or away < self._give_up):
            return False
        lost = self._shared.unacked.lost()
        if may_pass(error):
            kept = f"; {lost.items} items are unacknowledged" if lost.items else ""
            reason, remedy = why_away(error)
            error = ReceiverUnreachable(
                f"The receiver at {self._dial.address} could not be reached for {away:.0f} s ({reason}){kept}.",
                remedy=remedy,
                address=self._dial.address,
                reason=reason,
            )
        error.fields |= {"items": lost.items, "lost": lost}
        self._shared.failure = error
        return True

    def _connected(self) -> None:
        """Sends from hello to good-bye on one connection; returns when the producer is over, else raises."""
        with found_by(self._dial, self._shared.header.producer).open() as connection:
            self._resume(connection.act(HELLO, Hello(*self._standing()), Welcome, seconds=CALL_SECONDS))
            take, header = partial(self._take, self._shared.unacked), PutHeader(*self._standing())
            stream = PutConnection(connection, header, self._schema, acknowledged=take, ended=self._shared.notify)
            if self._write_until_closed(stream):
                stream.finish()
                connection.act(BYE, Bye(*self._standing()), Done, seconds=CALL_SECONDS)
            else:
                stream.drop()

    def _standing(self) -> tuple[str, str, Ends, Receipts]:
        with self._shared.changed:
            return (
                self._shared.header.producer,
                self._shared.header.session,
                self._shared.unacked.acked,
                self._shared.unacked.receipts,
            )

    def _resume(self, welcome: Welcome) -> None:
        with self._shared.changed:
            if not welcome.lanes:
                raise PushError(f"The receiver at {self._dial.address} has no lanes.")
            if self._shared.welcome is not None:
                self._shared.reconnects += 1
            # All of it, though ``received`` may say that some is there: the stream could reach another process than
            # the hello did, and whoever has it already drops it and acknowledges it again.
            self._shared.queue = deque(self._shared.unacked.pending(welcome.lanes))
            self._shared.welcome = welcome
            self._shared.header = replace(self._shared.header, session=welcome.session)
            self._shared.limit = min(self._shared.own_limit, welcome.unacked)
            if not self._shared.queue:
                self._shared.away_since = None
            self._shared.changed.notify_all()

    def _write_until_closed(self, stream: PutConnection) -> bool:
        while True:
            with self._shared.changed:
                self._shared.changed.wait_for(
                    lambda: self._shared.queue or stream.over or self._shared.aborted or self._shared.finished
                )
                if self._shared.aborted:
                    return False
                if self._shared.finished:
                    return True
                if stream.over:
                    break
                piece = self._shared.queue.popleft()
                if piece.written is None:
                    self._shared.sent += piece.rows
                    self._shared.bytes += piece.size
                else:
                    self._shared.resent += piece.rows
                piece.written = time.monotonic()
            stream.write(piece)
        stream.check()
        return False

    def _take(self, unacked: Unacked, ack: Ack) -> None:
        with self._shared.changed:
            # What abort() called lost stays so, and another session has numbers of its own.
            if self._shared.aborted or unacked is not self._shared.unacked:
                return
            if ack.unacked is not None:
                self._shared.limit = min(self._shared.own_limit, ack.unacked)
            self._release(self._shared.unacked.acknowledge(ack.lane, ack.end, ack.receipt))
            self._shared.away_since = None
            self._shared.changed.notify_all()

    def _release(self, pieces: list[Piece]) -> None:
        now = time.monotonic()
        for piece in pieces:
            self._shared.acknowledged += piece.rows
            if piece.written is not None:
                self._shared.latencies.add(now - piece.written)
