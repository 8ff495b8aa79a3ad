"""Where the time of a task goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from afspark.clock import Clock


@dataclass
class Stopwatch:
    """Seconds spent per part of a task, and of CPU from its making on."""

    clock: Clock
    seconds: dict[str, float] = field(default_factory=dict)
    #: seconds of CPU by part, where somebody counts them
    cpu: dict[str, float] = field(default_factory=dict)
    _cpu_started: float = field(default_factory=time.process_time)

    @property
    def cpu_seconds(self) -> float:
        """Seconds of CPU that this process has taken since the stopwatch was made."""
        return time.process_time() - self._cpu_started

    @contextmanager
    def counting_cpu(self, part: str) -> Iterator[None]:
        """Within it, seconds of CPU count for ``part``."""
        before = time.process_time()
        try:
            yield
        finally:
            self.cpu[part] = self.cpu.get(part, 0.0) + time.process_time() - before

    def start(self) -> float:
        """The time now, for `lap`."""
        return self.clock.monotonic()

    def lap(self, part: str, since: float) -> float:
        """The time now; what has passed since then counts for ``part``."""
        now = self.clock.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - since
        return now
