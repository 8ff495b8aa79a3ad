"""A slow line in front of a store: emulates a remote one in experiments."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from afspark.errors import UsageError
from afspark.store.base import Names, Store


@dataclass(frozen=True)
class Throttle:
    """A line with a latency per request and a bandwidth shared by all requests of one process.

    Equal throttles in one process are the same line, also after pickling. Several processes have a line each.
    """

    latency_seconds: float = 0.0
    bytes_per_second: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.latency_seconds < math.inf):
            raise UsageError("latency_seconds must be a finite number >= 0.", latency_seconds=self.latency_seconds)
        if not self.bytes_per_second > 0:
            raise UsageError("bytes_per_second must be > 0.", bytes_per_second=self.bytes_per_second)

    def transfer(self, size: int) -> None:
        """Sleeps as long as moving ``size`` bytes takes, queueing behind transfers under way."""
        now = time.monotonic()
        free = _lines.book(self, now, size / self.bytes_per_second)
        time.sleep(free - now + self.latency_seconds)


class _Lines:
    """When each line of this process is free again."""

    def __init__(self) -> None:
        self._free_at: dict[Throttle, float] = {}
        self.renew()

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._free_at.clear()

    def book(self, line: Throttle, now: float, seconds: float) -> float:
        """Takes the next ``seconds`` of a line and returns when they end."""
        with self._lock:
            self._free_at[line] = max(now, self._free_at.get(line, now)) + seconds
            return self._free_at[line]


_lines = _Lines()
# A forked child must neither inherit a lock that some thread of its parent held, nor queue behind it.
os.register_at_fork(after_in_child=_lines.renew)


class ThrottledStore(Store):
    """A store behind a `Throttle`: reads and writes pay latency and bandwidth, other requests latency."""

    def __init__(self, inner: Store, throttle: Throttle) -> None:
        self._inner = inner
        self._throttle = throttle

    @property
    def path(self) -> str:
        return self._inner.path

    def put(self, name: str, data: bytes) -> None:
        self._throttle.transfer(len(data))
        self._inner.put(name, data)

    def put_new(self, name: str, data: bytes) -> bool | None:
        self._throttle.transfer(len(data))
        return self._inner.put_new(name, data)

    def get(self, name: str) -> bytes:
        size = 0
        try:
            data = self._inner.get(name)
            size = len(data)
            return data
        finally:
            self._throttle.transfer(size)

    def has(self, name: str) -> bool:
        self._throttle.transfer(0)
        return self._inner.has(name)

    @property
    def makes_folders(self) -> bool:
        return self._inner.makes_folders

    @property
    def may_hang(self) -> bool:
        return self._inner.may_hang

    def taken_requests(self) -> dict[str, int]:
        return self._inner.taken_requests()

    def standing(self, folder: str) -> Store:
        return ThrottledStore(self._inner.standing(folder), self._throttle)

    def list(self, prefix: str) -> Names:
        self._throttle.transfer(0)
        return self._inner.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._throttle.transfer(0)
        self._inner.delete(names)
