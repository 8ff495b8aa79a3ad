"""Plain numpy twins of the cell kernels: slow, obvious, and the oracle of their tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def distance(a: float, b: float) -> float:
    """|a - b| of Python numbers, exact for integers; equal non-finite values are at distance 0."""
    if isinstance(a, int) and isinstance(b, int):
        return float(abs(a - b))
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    d = abs(a - b)
    return math.inf if math.isnan(d) else d


def distances(values: Array, shadows: Array) -> Array:
    return np.array([distance(a, b) for a, b in zip(values.tolist(), shadows.tolist(), strict=True)], np.float64)


def key_changes(values: Array, shadows: Array) -> Array:
    """1 where exactly one of value and shadow is zero."""
    return ((values != 0) ^ (shadows != 0)).astype(np.float64)


def living(values: Array, shadows: Array) -> int:
    """Cells of which value or shadow is not zero."""
    return int(np.count_nonzero((values != 0) | (shadows != 0)))


def first_touches(cells: Array, known: Array) -> Array:
    """The distinct cells that are not among ``known``, in order of appearance."""
    _, first = np.unique(cells, return_index=True)
    ordered: Array = cells[np.sort(first)]
    return ordered[~np.isin(ordered, known)]


def added(values: Array, cells: Array, deltas: Array) -> Array:
    result = values.copy()
    np.add.at(result, cells, deltas)
    return result


def overflows(values: Array, cells: Array, deltas: Array) -> bool:
    """Whether adding one by one leaves int64 at any moment."""
    sums = dict(enumerate(values.tolist()))
    for cell, delta in zip(cells.tolist(), deltas.tolist(), strict=True):
        sums[cell] += delta
        if not -(2**63) <= sums[cell] < 2**63:
            return True
    return False


def put(values: Array, cells: Array, news: Array) -> Array:
    result = values.copy()
    for cell, new in zip(cells.tolist(), news.tolist(), strict=True):
        result[cell] = new
    return result


def choose_largest(weights: Array, budget: float) -> Array:
    """Flags of the fewest weights such that the others add up to at most ``budget``; of equal ones the later
    are flagged.
    """
    chosen = np.ones(len(weights), np.bool_)
    kept = 0.0
    for i in np.argsort(weights, kind="stable"):
        if kept + weights[i] > budget:
            break
        kept += weights[i]
        chosen[i] = False
    return chosen
