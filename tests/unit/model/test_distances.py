"""Distances between exported states agree with the states' own divergence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.model.distances import cells_of, distance, same
from afspark.model.states import HashTable, HeapColumns, Matrix
from tests.unit.states.subjects import update_array, update_table


@pytest.mark.parametrize("divergence", ["max", "manhattan", "euclidean"])
@pytest.mark.parametrize("kind", ["table", "matrix"])
@pytest.mark.parametrize("seed", range(5))
def test_distance_to_the_backup_is_the_divergence(kind: str, divergence: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    state: Any
    if kind == "table":
        state, update = HashTable(divergence=divergence).open(HeapColumns(), "state"), update_table
    else:
        state, update = Matrix(rows=3, cols=4, divergence=divergence).open(HeapColumns(), "state"), update_array
    state.begin()
    update(state, random)
    state.update_drift()
    state.issue(0.0)
    state.acknowledge()
    backup = cells_of(state.export())
    state.begin()
    update(state, random)
    state.update_drift()
    assert distance(divergence, backup, cells_of(state.export())) == pytest.approx(state.divergence())


def test_cells_without_a_value_are_present_or_not() -> None:
    left = cells_of(pa.record_batch({"key": ["a", "b"]}))
    right = cells_of(pa.record_batch({"key": ["b", "c"]}))
    assert distance("keys", left, right) == 2 and distance("max", left, right) == 1
    assert len(cells_of(pa.record_batch({"value": [4.0, 5.0]}))) == 2


def test_undefined_values_are_equal_but_at_no_distance() -> None:
    assert same({1: math.nan}, {1: math.nan}) and not same({1: math.nan}, {1: 0.0}) and not same({1: 0}, {})
    assert math.isnan(distance("max", {1: math.nan, 2: 5.0}, {2: 1.0}))
    assert distance("manhattan", {}, {}) == distance("max", {}, {}) == distance("euclidean", {}, {}) == 0
