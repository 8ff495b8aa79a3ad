"""A histogram of durations that takes the same memory whatever it has seen."""

from __future__ import annotations

import math

_LEAST, _PER_OCTAVE, _OCTAVES = 1e-6, 8, 36


class Latencies:
    """Durations in seconds; quantiles are at most 9 % too high.

    >>> seen = Latencies()
    >>> for milliseconds in range(1, 101):
    ...     seen.add(milliseconds / 1000)
    >>> seen.count, 0.050 <= seen.quantile(0.5) <= 0.055, seen.quantile(1.0)
    (100, True, 0.1)
    """

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0.0
        self._buckets = [0] * (_PER_OCTAVE * _OCTAVES)

    def add(self, seconds: float) -> None:
        place = math.ceil(math.log2(max(seconds, _LEAST) / _LEAST) * _PER_OCTAVE)
        self._buckets[min(place, len(self._buckets) - 1)] += 1
        self.count += 1
        self.longest = max(self.longest, seconds)

    def quantile(self, share: float) -> float | None:
        """The duration that ``share`` of all were at most; None without any."""
        wanted, seen = share * self.count, 0
        for place, number in enumerate(self._buckets):
            seen += number
            if number and seen >= wanted:
                return min(_LEAST * 2 ** (place / _PER_OCTAVE), self.longest)
        return None
