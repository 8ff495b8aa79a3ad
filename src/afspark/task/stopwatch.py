"""Where the time of a task goes."""

from __future__ import annotations

from dataclasses import dataclass, field

from afspark.clock import Clock


@dataclass
class Stopwatch:
    """Seconds spent per part of a task."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)

    def start(self) -> float:
        """The time now, for `lap`."""
        return self.clock.monotonic()

    def lap(self, part: str, since: float) -> float:
        """The time now; what has passed since then counts for ``part``."""
        now = self.clock.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - since
        return now
