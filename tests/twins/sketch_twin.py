"""Plain numpy twin of the Count-Min kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MASK = (1 << 64) - 1


def columns_of(hashes: Array, factor: int, columns: int) -> Array:
    """Column of each hash in the row with this factor, in exact integers."""
    return np.array([((int(h) * factor & _MASK) >> 32) * columns >> 32 for h in hashes], np.int64)


def update(delta: Array, hashes: Array, weights: Array, factors: list[int]) -> None:
    for row in range(len(delta)):
        np.add.at(delta[row], columns_of(hashes, factors[row], delta.shape[1]), weights)


def estimate(matrix: Array, hashes: Array, factors: list[int]) -> Array:
    rows = [line[columns_of(hashes, factor, len(line))] for line, factor in zip(matrix, factors, strict=False)]
    least: Array = np.min(rows, axis=0)
    return least


def update_and_find(
    matrix: Array, hashes: Array, weights: Array, hint: float, seen: set[int], factors: list[int]
) -> list[int]:
    """One key at a time: update, estimate, report if heavy and not in ``seen``."""
    found = []
    for i in range(len(hashes)):
        one = slice(i, i + 1)
        update(matrix, hashes[one], weights[one], factors)
        if estimate(matrix, hashes[one], factors)[0] >= hint and int(hashes[i]) not in seen:
            seen.add(int(hashes[i]))
            found.append(i)
    return found
