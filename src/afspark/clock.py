"""Time, as everything that waits or stamps is given it: a test, or a simulation, hands in another clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on the wall, seconds that never go back, and waiting."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clock of this machine."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
