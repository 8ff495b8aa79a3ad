"""How much a receiver takes from producers, and a pace for those who send too fast. Pure; no clock of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one receiver allows.

    ``buffer_bytes`` are shared evenly by its lanes; when a lane's share is full, producers wait. A batch that
    is larger than ``message_bytes`` or than a lane's share is refused. ``rows_per_second`` is per producer name.
    """

    message_bytes: int = 64 << 20
    buffer_bytes: int = 256 << 20
    producers: int = 256
    rows_per_second: float = math.inf

    def __post_init__(self) -> None:
        for option in fields(self):
            if not getattr(self, option.name) > 0:
                raise UsageError(
                    f"{option.name} must be > 0, not {getattr(self, option.name)!r}.",
                    remedy="Give a positive limit, or leave it out.",
                    option=option.name,
                )

    def lane_bytes(self, lanes: int) -> int:
        """The share of the buffer that one of ``lanes`` lanes has."""
        return max(1, self.buffer_bytes // max(1, lanes))

    def largest_batch(self, lanes: int) -> int:
        """The largest batch that is taken, in bytes."""
        return min(self.message_bytes, self.lane_bytes(lanes))


class Pace:
    """Spreads rows over time: at most ``rows_per_second``, with one second's worth at once.

    >>> pace = Pace(100.0)
    >>> pace.delay(rows=100, now=5.0), pace.delay(rows=50, now=5.0), pace.delay(rows=1, now=7.0)
    (0.0, 0.5, 0.0)
    """

    def __init__(self, rows_per_second: float) -> None:
        self._rate = rows_per_second
        self._paid_until = -math.inf

    def delay(self, *, rows: int, now: float) -> float:
        """Counts ``rows`` and tells how many seconds their sender has to wait."""
        if math.isinf(self._rate):
            return 0.0
        # What was not used is kept for one second.
        self._paid_until = max(self._paid_until, now - 1.0) + rows / self._rate
        return max(0.0, self._paid_until - now)
