"""What all calls of one receiver share."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from afspark.clock import Clock
from afspark.push.receiver.lane_service import LaneService
from afspark.push.receiver.lane_signals import GLANCE_SECONDS
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.producer_registry import Registry
from afspark.push.receiver.sessions import Sessions
from afspark.push.wire.messages import Hello, producer_id
from afspark.push.wire.push_errors import LimitExceeded, ReceiverStopped, UnknownLane


@dataclass
class CallContext:
    """The lanes, the producers and the limits of a receiver."""

    schema: pa.Schema
    lanes: Mapping[int, LaneService]
    registry: Registry
    sessions: Sessions
    limits: Limits
    unacked: float
    clock: Clock
    stopping: threading.Event
    refused: Counter[str] = field(default_factory=Counter)
    _turn: int = 0
    _streams: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entering: threading.Lock = field(default_factory=threading.Lock)

    @property
    def largest_batch(self) -> int:
        return self.limits.largest_batch(len(self.lanes))

    def lane(self, number: int) -> LaneService:
        try:
            return self.lanes[number]
        except KeyError:
            raise UnknownLane(
                f"Lane {number} is not here, {sorted(self.lanes)} are.", lane=number, lanes=sorted(self.lanes)
            ) from None

    def next_lane(self) -> int:
        """Lanes in turn, for producers that do not choose."""
        with self._lock:
            self._turn += 1
            return sorted(self.lanes)[self._turn % len(self.lanes)]

    def enter(self, said: Hello) -> str:
        """The name of a producer's session, which is let in; it is a new one if the producer has named none.

        `UnknownSession` and `SessionOver` if it is not to be continued here; `Unproven` if it says that more was
        acknowledged than this receiver knows, and cannot prove it.
        """
        acked = {number: end for number, end in said.acked.items() if end and number in self.lanes}
        if said.session:
            self.sessions.check(said.producer, said.session)
        claims = {number: end for number, end in acked.items() if end > self.lanes[number].acked(said.id)}
        self.sessions.check_receipts(said.id, claims, said.receipts)
        # Sessions come to all lanes in the order in which they began.
        with self._entering:
            session = said.session or self.sessions.begin(said.producer)
            producer = producer_id(said.producer, session)
            if said.session:
                for lane in self.lanes.values():
                    lane.check_open(producer)
            self.registry.admit(said.producer, producer)
            for lane in self.lanes.values():
                lane.open(producer, begins=not said.session)
        for number, end in acked.items():
            self.lanes[number].mark(producer, end)
        return session

    @contextlib.contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a put stream while it is open: each holds a thread, also one that never sends anything."""
        # A producer that connects anew may have its old stream for a while.
        allowed = 2 * self.limits.producers
        with self._lock:
            if self._streams >= allowed:
                raise LimitExceeded(
                    f"There are {self._streams} streams already, {allowed} are allowed.",
                    remedy="Use one stream per producer, or raise the limit 'producers'.",
                    limit="producers",
                    allowed=allowed,
                    found=self._streams + 1,
                )
            self._streams += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1

    def count_refusal(self, kind: str) -> None:
        with self._lock:
            self.refused[kind] += 1

    def pause(self, seconds: float, alive: Callable[[], bool]) -> None:
        """Waits that long; `ReceiverStopped` if the receiver stops or the caller goes away meanwhile."""
        deadline = self.clock.monotonic() + seconds
        while (remaining := deadline - self.clock.monotonic()) > 0:
            if self.stopping.wait(min(remaining, GLANCE_SECONDS)) or not alive():
                raise ReceiverStopped("The receiver stops, or the call was given up.")
