"""Logistic regression item by item, as it is defined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from tests.twins.hashing_twin import hash_int64, mix

_MASK, _GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15

Row = Sequence[tuple[int, float]]
"""The features of an item: cells and values, without the bias, which is cell 0."""


def learn(
    model: dict[int, float], items: Iterable[tuple[int, Row]], *, t: int = 0, rate: float = 1.0, norm: float = math.inf
) -> tuple[int, float]:
    """Learns from (label, features) in place; how many were predicted rightly before, and the sum of log losses."""
    correct, loss = 0, 0.0
    for label, row in items:
        length = math.sqrt(math.fsum(x * x for _, x in row))
        scale = norm / length if length > norm else 1.0
        z = model.get(0, 0.0) + scale * sum(model.get(cell, 0.0) * x for cell, x in row)
        p = 1 / (1 + math.exp(-z)) if z > -700 else math.exp(z)
        correct += (z > 0) == bool(label)
        loss += math.log1p(math.exp(-abs(z))) + (abs(z) if (z > 0) != bool(label) else 0.0)
        t += 1
        step = rate / math.sqrt(t) * (label - p)
        model[0] = model.get(0, 0.0) + step
        for cell, x in row:
            model[cell] = model.get(cell, 0.0) + step * scale * x
    return correct, loss


def merge(base: Mapping[int, float], models: Sequence[tuple[int, Mapping[int, float]]]) -> dict[int, float]:
    """The average of models, weighted by the items each has learned from; a cell that one lacks is that of ``base``."""
    total = sum(items for items, _ in models)
    cells = set(base).union(*(model for _, model in models))
    return {
        cell: sum(items / total * model.get(cell, base.get(cell, 0.0)) for items, model in models) for cell in cells
    }


def place(value: int, column: int, slots: int, first: int = 0) -> int:
    """The cell of an integer in a categorical column."""
    return first + ((mix((hash_int64(value) + (column + 1) * _GOLDEN) & _MASK) >> 32) * slots >> 32)
