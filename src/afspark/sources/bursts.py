"""A day of traffic with bursts: a slow tide, and on top of it a few short peaks of several times its height.

Such is the throughput of the workload that StreamMine3G's adaptive fault tolerance was measured with (figure 4 of that
paper). The day may be as short as anybody likes.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import NamedTuple

import numpy as np

from afspark.model.kernels.plain_arrays import Array

CELLS = 8640
"""The parts of a day within which traffic is even: ten seconds of one of 24 hours."""
PEAKS = 6

_RESOLUTION = 1 << 20


class Peak(NamedTuple):
    """Where a peak is, as a part of the day, how wide it is (its deviation), and its height over a tide of 1."""

    at: float
    width: float
    height: float


class Bursts:
    """The traffic of a day, the same for a ``seed`` every time; each sixth of the day has a peak.

    ``highest``: what the traffic of the busiest moment is over that of an average one; default: as it comes.
    """

    def __init__(self, seed: int, highest: float | None = None) -> None:
        draw = Random(seed)
        self.peaks = tuple(
            Peak((number + draw.uniform(0.2, 0.8)) / PEAKS, draw.uniform(0.003, 0.01), draw.uniform(4.0, 9.0))
            for number in range(PEAKS)
        )
        middles = (np.arange(CELLS) + 0.5) / CELLS
        tide = 1.0 + 0.4 * np.sin(2 * np.pi * (middles - 0.3))
        heights = [one.height * np.exp(-0.5 * ((middles - one.at) / one.width) ** 2) for one in self.peaks]
        # Whole numbers, because the last bit of a sine may differ between processors and all workers must draw alike.
        parts = np.rint(np.array([tide, *heights]) * _RESOLUTION)
        self._weights = parts.sum(axis=0)
        if highest is not None:
            self._weights = _stretched(self._weights, highest)
        self._sums = np.concatenate(([0.0], np.cumsum(self._weights)))
        self._highest = parts[1:].argmax(axis=0)
        self._share = parts[1:].max(axis=0) / parts.sum(axis=0)

    def times(self, first: int, count: int, per_day: int) -> Array:
        """When so many items from number ``first`` on happen, in days since the beginning, if a day has ``per_day``:
        ascending, and closer to each other where traffic is denser.
        """
        days, within = np.divmod(first + np.arange(count), per_day)
        reached = (within + 0.5) / per_day * self._sums[-1]
        cells = np.searchsorted(self._sums, reached, side="right") - 1
        return days + (cells + (reached - self._sums[cells]) / self._weights[cells]) / CELLS

    def rates(self, times: Array) -> Array:
        """The traffic at these times, in days, over that of an average moment."""
        return self._weights[_cells(times)] / self._weights.mean()

    def peaks_at(self, times: Array) -> tuple[Array, Array]:
        """The number of the peak that is highest at these times, in days, and its share of the traffic there."""
        cells = _cells(times)
        return self._highest[cells], self._share[cells]


def _cells(times: Array) -> Array:
    return np.minimum(((times - np.floor(times)) * CELLS).astype(np.int64), CELLS - 1)


def _stretched(weights: Array, highest: float) -> Array:
    """Weights of nearly the same mean, the largest of which is so many times that."""
    over = weights / weights.mean() - 1.0
    return np.rint(np.maximum(1.0 + over * ((highest - 1.0) / over.max()), 0.05) * _RESOLUTION)


@lru_cache(maxsize=8)
def bursts(seed: int, highest: float | None = None) -> Bursts:
    """The bursts of a seed, made once in every process."""
    return Bursts(seed, highest)
