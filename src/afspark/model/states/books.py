"""The running divergence of a state: what is known about all cells from looking at touched ones only.

Pure arithmetic on two numbers per state. For sums, ``power`` is the power sum over all cells, and ``error``
bounds how far rounding may have carried it from the truth, so that a decision can be on the safe side and a
full scan is made when the books have become too vague for the threshold. For the maximum, ``power`` is an
upper bound over all cells and ``error`` is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from afspark.model.divergence import Divergence
from afspark.model.kernels.cell_kernels import SUM_BLOCK

_EPSILON = 2.0**-52
_EXACT = 2.0**52
UNSEEN = 2.0**-1000
"""Stands for differences that leave no trace in a power sum: squares that underflow, and values where only keys
are counted. Without it a state with such differences would seem exactly backed up.
"""


@dataclass(frozen=True)
class Balance:
    """Power sum (or maximum) over all cells, and a bound on its error."""

    power: float = 0.0
    error: float = 0.0

    @property
    def most(self) -> float:
        """No true value is above this; infinite if the books are of no use."""
        worst = self.power + self.error
        return math.inf if math.isnan(worst) else worst


def rounding(total: float, count: int, *, integers: bool) -> float:
    """Bound on the rounding error of a power sum ``total`` of ``count`` non-negative terms."""
    if not math.isfinite(total):
        return math.inf
    if integers:
        return 0.0 if total < _EXACT else _EPSILON * (2 * SUM_BLOCK + count / SUM_BLOCK) * total
    if count == 0:
        return 0.0
    return _EPSILON * (2 * SUM_BLOCK + count / SUM_BLOCK) * total + UNSEEN


def untouched(start: Balance, before: float, count: int, *, integers: bool) -> Balance:
    """What the cells outside the journal contribute, given the balance at the start and the journalled cells'
    share of it.
    """
    if start.power == 0.0 and start.error == 0.0 and before == 0.0:
        return start
    error = start.error + rounding(start.power + before, count, integers=integers)
    power = start.power - before
    if math.isnan(power) or not math.isfinite(error):
        return Balance(math.inf, math.inf)
    return Balance(max(power, 0.0), error)


def combined(divergence: Divergence, left: Balance, right: Balance) -> Balance:
    """The balance of two disjoint sets of cells."""
    if divergence is Divergence.MAX:
        return Balance(max(left.power, right.power), 0.0)
    return Balance(left.power + right.power, left.error + right.error)
