"""How the cells of a state make up each divergence: which kernels fold, weigh and scan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from afspark.model.divergence import Divergence
from afspark.model.kernels import cell_kernels as kernel
from afspark.model.states.columns import Array


class Fold(NamedTuple):
    """What the journalled cells contribute to a divergence."""

    before: float
    """By their old values; 0 for a maximum, which cannot be corrected."""
    after: float
    """By their present values."""
    gained: int
    """How many more of them are alive (value or shadow not 0) than were before; 0 unless asked for."""


class Measure(ABC):
    """One divergence over arrays of values and shadows."""

    adds_up: ClassVar[bool] = True
    """Whether it is a power sum over cells; else it is their maximum."""
    counts: ClassVar[bool] = False
    """Whether a cell's term is 0 or 1, whatever its value."""

    @abstractmethod
    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array, counting: bool) -> Fold:
        """What the journalled cells contribute; one pass, because their values are spread over the memory."""

    @abstractmethod
    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        """The term of each of these cells."""

    @abstractmethod
    def total(self, values: Array, shadows: Array) -> float:
        """The power sum or maximum over all cells."""


class Largest(Measure):
    adds_up = False

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array, counting: bool) -> Fold:
        largest, gained = kernel.fold_max(journal, olds, values, shadows, counting)
        return Fold(0.0, float(largest), int(gained))

    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        return differences(cells, values, shadows)

    def total(self, values: Array, shadows: Array) -> float:
        return float(kernel.largest_distance(values, shadows))


class PowerSum(Measure):
    def __init__(self, *, squared: bool) -> None:
        self._squared = squared

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array, counting: bool) -> Fold:
        before, after, gained = kernel.fold_sums(journal, olds, values, shadows, self._squared, counting)
        return Fold(float(before), float(after), int(gained))

    def weights(self, cells: Array, values: Array, shadows: Array) -> Array:
        weights = differences(cells, values, shadows)
        return np.square(weights, out=weights) if self._squared else weights

    def total(self, values: Array, shadows: Array) -> float:
        return float(kernel.total_distance(values, shadows, self._squared))


class KeyChanges(Measure):
    counts = True

    def fold(self, journal: Array, olds: Array, values: Array, shadows: Array, counting: bool) -> Fold:
        before, after, gained = kernel.fold_keys(journal, olds, values, shadows)
        return Fold(float(before), float(after), int(gained))

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
