"""How the cells of a state make up each divergence: which kernels fold, weigh and scan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from afspark.model.divergence import Divergence
from afspark.model.kernels import cells as kernel
from afspark.model.states.columns import Array


class Measure(ABC):
    """One divergence over arrays of values and shadows."""

    adds_up: ClassVar[bool] = True
    """Whether it is a power sum over cells; else it is their maximum."""
    counts: ClassVar[bool] = False
    """Whether a cell's term is 0 or 1, whatever its value."""

    @abstractmethod
    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array) -> tuple[float, float]:
        """Share of the journalled cells: by their old values (0 for a maximum, which cannot be corrected), and
        by their present ones.
        """

    @abstractmethod
    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        """The term of each of these cells."""

    @abstractmethod
    def total(self, values: Array, shadows: Array) -> float:
        """The power sum or maximum over all cells."""


class Largest(Measure):
    adds_up = False

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array) -> tuple[float, float]:
        return 0.0, float(kernel.fold_max(journal, values, shadows))

    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        return differences(cells, values, shadows)

    def total(self, values: Array, shadows: Array) -> float:
        return float(kernel.largest_distance(values, shadows))


class PowerSum(Measure):
    def __init__(self, *, squared: bool) -> None:
        self._squared = squared

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array) -> tuple[float, float]:
        before, after = kernel.fold_sums(journal, olds, values, shadows, self._squared)
        return float(before), float(after)

    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        weights = differences(cells, values, shadows)
        return np.square(weights, out=weights) if self._squared else weights

    def total(self, values: Array, shadows: Array) -> float:
        return float(kernel.total_distance(values, shadows, self._squared))


class KeyChanges(Measure):
    counts = True

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array) -> tuple[float, float]:
        before, after = kernel.fold_keys(journal, olds, values, shadows)
        return float(before), float(after)

    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        weights = np.empty(len(cells), np.float64)
        kernel.key_changes(cells, values, shadows, weights)
        return weights

    def total(self, values: Array, shadows: Array) -> float:
        return float(kernel.count_key_changes(values, shadows))


def differences(cells: Array, values: Array, shadows: Array) -> Array:
    """Absolute difference of each of these cells from its shadow."""
    found = np.empty(len(cells), np.float64)
    kernel.distances(cells, values, shadows, found)
    return found


MEASURES: dict[Divergence, Measure] = {
    Divergence.MAX: Largest(),
    Divergence.MANHATTAN: PowerSum(squared=False),
    Divergence.EUCLIDEAN: PowerSum(squared=True),
    Divergence.KEYS: KeyChanges(),
}
