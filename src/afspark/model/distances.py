"""The distance between two states, from their exported cells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from afspark.model.divergence import Divergence

Cells = Mapping[Any, float]

VALUE = "value"


def cells_of(exported: pa.RecordBatch) -> Cells:
    """Cells by key, whatever a state calls its keys; cells without a value count as 1."""
    names = [name for name in exported.schema.names if name != VALUE]
    keys: list[Any] = list(zip(*(exported.column(name).to_pylist() for name in names), strict=True))
    if not names:
        keys = list(range(exported.num_rows))
    values = exported.column(VALUE).to_pylist() if VALUE in exported.schema.names else [1] * len(keys)
    return dict(zip(keys, values, strict=True))


def distance(divergence: Divergence | str, left: Cells, right: Cells) -> float:
    """How far two states are apart by that divergence; absent cells count as 0.

    >>> distance("max", {"a": 5, "b": 1}, {"a": 2}), distance("manhattan", {"a": 5, "b": 1}, {"a": 2})
    (3.0, 4.0)
    >>> distance("keys", {"a": 5, "b": 1}, {"a": 2})
    1.0
    """
    if divergence == "keys":
        return float(len(left.keys() ^ right.keys()))
    differences = [abs(left.get(key, 0) - right.get(key, 0)) for key in left.keys() | right.keys()]
    if any(math.isnan(difference) for difference in differences):
        return math.nan
    if divergence == "max":
        return float(max(differences, default=0.0))
    if divergence == "euclidean":
        return math.hypot(*differences)
    return math.fsum(differences)


def same(left: Cells, right: Cells) -> bool:
    """Whether two states are equal cell by cell; undefined values equal each other."""
    return left.keys() == right.keys() and all(_equal(value, right[key]) for key, value in left.items())


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
