"""Where the time of a task goes."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass
class Stopwatch:
    """Seconds spent per part of a task."""

    seconds: dict[str, float]

    def start(self) -> float:
        return time.perf_counter()

    def lap(self, part: str, since: float) -> float:
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - since
        return now
