"""How the cells of a state make up each divergence: which kernels fold, weigh and scan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from afspark.model.divergence import Divergence
from afspark.model.kernels import cell_kernels as kernel
from afspark.model.kernels.plain_arrays import Array

#: (cells, values, shadows, out): the term of each of these cells
Weigh = Callable[[Array, Array, Array, Array], None]


@dataclass(frozen=True)
class Measure:
    """One divergence over arrays of values and shadows, as kernels."""

    #: (journal, olds, values, shadows, counting) -> what the journalled cells contribute by their old values, what by
    #: their present ones, and, if it is to be counted, how many more of them are alive (value or shadow not 0); in one
    #: pass, because their values are spread over the memory
    fold: Callable[[Array, Array, Array, Array, bool], tuple[float, float, int]]
    weigh: Weigh
    #: (values, shadows) -> the power sum or maximum over all cells
    total: Callable[[Array, Array], float]
    #: whether it is a power sum over cells; else it is their maximum
    adds_up: bool = True
    #: whether a cell's term is 0 or 1, whatever its value
    counts: bool = False


MEASURES: dict[Divergence, Measure] = {
    Divergence.MAX: Measure(kernel.fold_max, kernel.distances, kernel.largest_distance, adds_up=False),
    Divergence.MANHATTAN: Measure(
        partial(kernel.fold_sums, False), kernel.distances, partial(kernel.total_distance, False)
    ),
    Divergence.EUCLIDEAN: Measure(
        partial(kernel.fold_sums, True), kernel.squared_distances, partial(kernel.total_distance, True)
    ),
    Divergence.KEYS: Measure(kernel.fold_keys, kernel.key_changes, kernel.count_key_changes, counts=True),
}
