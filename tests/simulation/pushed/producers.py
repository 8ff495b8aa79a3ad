"""Producers: they number what they send, keep what is not acknowledged, and send it again to a new receiver."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from afspark.push.producer.unacked import Piece, Unacked
from afspark.push.receiver.lane_entries import LaneItems
from afspark.push.wire.messages import BYE, HELLO, Bye, Hello, Welcome, producer_id
from afspark.push.wire.push_errors import PushError
from tests.simulation.pushed.schedule import LARGEST, PushedSchedule
from tests.simulation.pushed.wire import SimulatedEndpoint
from tests.simulation.pushed.world import PushedWorld

SCHEMA = pa.schema([("item", pa.int64()), ("key", pa.int64()), ("value", pa.int64()), ("at", pa.float64())])
KEYS = 4
#: More than any schedule sends.
MOST_ITEMS = 1024


@dataclass(frozen=True, slots=True)
class Item:
    """What was sent as one number of a producer to a lane."""

    item: int
    key: int
    value: int
    at: float


class Stock(NamedTuple):
    """Items to send, as they are and as Arrow has them."""

    items: list[Item]
    batch: pa.RecordBatch


@lru_cache
def stocked(begin: float) -> Stock:
    """Items whose times begin there and go on with their numbers, in about that order."""
    rng = random.Random(0)
    items = [
        Item(number, rng.randrange(KEYS), rng.randint(1, LARGEST), begin + max(0, number + rng.randint(-6, 3)))
        for number in range(MOST_ITEMS)
    ]
    columns = [[getattr(one, name) for one in items] for name in SCHEMA.names]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return Stock(items, pa.record_batch(arrays, schema=SCHEMA))


class Ledger:
    """Every item that was ever sent, by lane and session, in the order of its numbers; and what is acknowledged."""

    def __init__(self) -> None:
        self.sent: dict[tuple[int, str], list[Item]] = {}
        self.acked: dict[tuple[int, str], int] = {}
        self.count = 0


class Acks:
    """Acknowledgements of one session that are on their way."""

    def __init__(self) -> None:
        self.owed: dict[int, int] = {}

    def owe(self, lane: int, end: int, *, from_reader: bool = False) -> None:
        self.owed[lane] = max(end, self.owed.get(lane, 0))


class Producer:
    """One session after the other of a producer."""

    def __init__(self, number: int, schedule: PushedSchedule, here: PushedWorld, ledger: Ledger) -> None:
        self.name, self.schedule, self.here, self.ledger = f"p{number}", schedule, here, ledger
        self.left = schedule.pieces
        self.over = False
        self._turn = number
        self._begin()

    def _begin(self) -> None:
        #: named by the receiver that it first says hello to
        self.session = ""
        self.unacked = Unacked()
        self.queue: deque[Piece] = deque()
        self.endpoint: SimulatedEndpoint | None = None
        self.limit = 0.0
        self._acks = Acks()

    @property
    def id(self) -> str:
        return producer_id(self.name, self.session)

    def die(self) -> None:
        """What was not acknowledged goes with it; another session begins."""
        self._begin()

    def lose_acks(self) -> None:
        """Acknowledgements that are on their way do not arrive."""
        self._acks = Acks()

    @property
    def waits(self) -> bool:
        return bool(self.unacked.items)

    def act(self, endpoint: SimulatedEndpoint | None) -> None:
        """One move: hear what was acknowledged, connect, or send."""
        if self.over:
            return
        self._hear()
        if endpoint is not None and self.endpoint is not endpoint:
            self._connect(endpoint)
        elif self.endpoint is None or not self.endpoint.alive:
            self._acks, self.endpoint = Acks(), None
        elif self.queue:
            self._send(self.queue.popleft())
        elif self.left and self.unacked.has_room(1, items=self.limit, size=0, bytes_limit=1e9):
            self.left -= 1
            self._give_out()

    def say_bye(self) -> None:
        """Ends the session in order, if everything is acknowledged."""
        self._hear()
        if self.over or self.endpoint is None or not self.endpoint.alive:
            return
        if self.session and not self.unacked.items:
            self.endpoint.act(BYE, Bye(self.name, self.session, self.unacked.acked, self.unacked.receipts))
            self.over = True

    def _hear(self) -> None:
        for lane, end in self._acks.owed.items():
            assert self.endpoint is not None
            self.unacked.acknowledge(lane, end, self.endpoint.context.sessions.receipt(self.id, lane, end))
            place = (lane, self.id)
            self.ledger.acked[place] = max(end, self.ledger.acked.get(place, 0))
        self._acks.owed = {}

    def _connect(self, endpoint: SimulatedEndpoint) -> None:
        self._acks = Acks()
        hello = Hello(self.name, self.session, self.unacked.acked, self.unacked.receipts)
        welcome: Welcome = endpoint.act(HELLO, hello)
        self.session = welcome.session
        stream: Any = self._acks
        endpoint.context.registry.connect(self.name, self.id, stream)
        for number, lane in endpoint.context.lanes.items():
            if end := lane.acked(self.id):
                self._acks.owe(number, end)
        self.endpoint, self.limit = endpoint, welcome.unacked
        self.queue = deque(self.unacked.pending(welcome.lanes))

    def _give_out(self) -> None:
        dice = self.here.dice.at(self.here.moments.next(f"{self.name} sends"))
        lane = self._turn % self.schedule.lanes
        self._turn += 1
        first, span = self.ledger.count, dice.randint(1, max(1, int(min(self.limit / 2, 3))))
        self.ledger.count += span
        leap = self.schedule.leap if self.left < self.schedule.pieces / 2 else 0.0
        stock = stocked(self.schedule.epoch + leap)
        self.ledger.sent.setdefault((lane, self.id), []).extend(stock.items[first : first + span])
        batch = stock.batch.slice(first, span)
        self._send(self.unacked.admit(lane, batch, batch.nbytes))

    def _send(self, piece: Piece) -> None:
        assert self.endpoint is not None
        try:
            end = self.endpoint.context.lane(piece.lane).put(
                LaneItems(self.id, piece.start, piece.span, piece.batch), piece.size, lambda: True
            )
        except PushError:
            self._acks, self.endpoint = Acks(), None
            return
        if end:
            self._acks.owe(piece.lane, end)
