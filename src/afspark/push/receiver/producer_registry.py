"""The producers a receiver knows: who is connected, at which pace they send, and where acknowledgements go."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from afspark.clock import Clock
from afspark.push.receiver.acks import Acks
from afspark.push.receiver.lane_service import LaneService
from afspark.push.receiver.limits import Limits, Pace
from afspark.push.wire.push_errors import LimitExceeded


@dataclass
class _Peer:
    name: str
    seen: float
    stream: Acks | None = None


class Registry:
    """Sessions by id. An idle session is forgotten when a new one needs its place."""

    def __init__(self, limits: Limits, lanes: Mapping[int, LaneService], clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._lanes = lanes
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}
        self._paces: dict[str, Pace] = {}

    def admit(self, name: str, producer: str) -> None:
        """Makes a session known; `LimitExceeded` if there are too many that are connected or have items here."""
        with self._lock:
            peer = self._peers.get(producer)
            if peer is not None:
                peer.seen = self._clock.monotonic()
                return
            if len(self._peers) >= self._limits.producers and not self._evict():
                raise LimitExceeded(
                    f"There are {len(self._peers)} producers already, {self._limits.producers} are allowed.",
                    remedy="End some of them, or raise the limit 'producers'.",
                    limit="producers",
                    allowed=self._limits.producers,
                    found=len(self._peers) + 1,
                )
            self._peers[producer] = _Peer(name, self._clock.monotonic())

    def connect(self, name: str, producer: str, stream: Acks) -> None:
        """Acknowledgements of the session go to this stream from now on."""
        self.admit(name, producer)
        with self._lock:
            self._peers[producer].stream = stream

    def disconnect(self, producer: str, stream: Acks) -> None:
        with self._lock:
            peer = self._peers.get(producer)
            if peer is not None and peer.stream is stream:
                peer.stream = None
                peer.seen = self._clock.monotonic()

    def leave(self, producer: str) -> None:
        """The session is over."""
        with self._lock:
            peer = self._peers.get(producer)
            if peer is not None and peer.stream is None:
                self._remove(producer)

    def is_current(self, producer: str, stream: Acks) -> bool:
        with self._lock:
            peer = self._peers.get(producer)
            return peer is not None and peer.stream is stream

    def deliver(self, lane: int, ends: Mapping[str, int]) -> None:
        """Passes acknowledgements on to the streams of their producers."""
        for producer, end in ends.items():
            with self._lock:
                peer = self._peers.get(producer)
                stream = None if peer is None else peer.stream
            if stream is not None:
                stream.owe(lane, end)

    def delay(self, name: str, rows: int) -> float:
        """Seconds that a producer has to wait before it may go on."""
        with self._lock:
            pace = self._paces.get(name)
            if pace is None:
                pace = self._paces[name] = Pace(self._limits.rows_per_second)
            return pace.delay(rows=rows, now=self._clock.monotonic())

    def counts(self) -> dict[str, int]:
        with self._lock:
            connected = sum(peer.stream is not None for peer in self._peers.values())
            return {"producers": len(self._peers), "connected": connected}

    def _evict(self) -> bool:
        for producer, peer in sorted(self._peers.items(), key=lambda item: item[1].seen):
            if peer.stream is None and all(lane.idle(producer) for lane in self._lanes.values()):
                for lane in self._lanes.values():
                    lane.evict(producer)
                self._remove(producer)
                return True
        return False

    def _remove(self, producer: str) -> None:
        name = self._peers.pop(producer).name
        if all(peer.name != name for peer in self._peers.values()):
            self._paces.pop(name, None)
