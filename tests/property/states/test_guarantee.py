"""The bound on divergence, recomputed in plain Python from what a user can see, for arbitrary updates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.divergence import Divergence
from afspark.model.states import HashTable, HeapColumns, Matrix
from afspark.model.states.conformance import image

WHOLE = st.one_of(st.integers(-20, 20), st.integers(-(2**40), 2**40))
REAL = st.one_of(st.integers(-20, 20).map(float), st.floats(-1e12, 1e12))
THETAS = st.sampled_from([0.0, 0.3, 1.0, 7.5, 1000.0, math.inf])


def batches(amount: st.SearchStrategy) -> st.SearchStrategy:
    change = st.tuples(st.sampled_from(["add", "put"]), st.lists(st.tuples(st.integers(0, 11), amount), max_size=15))
    fate = st.sampled_from(["acknowledged", "acknowledged", "lost", "rolled back"])
    return st.lists(st.tuples(st.lists(change, max_size=3), THETAS, fate), max_size=8)


def separation(divergence: Divergence, left: dict[Any, Any], right: dict[Any, Any]) -> float:
    differences = [float(abs(left.get(key, 0) - right.get(key, 0))) for key in left.keys() | right.keys()]
    if divergence is Divergence.MAX:
        return max(differences, default=0.0)
    return math.fsum(differences) if divergence is Divergence.MANHATTAN else math.hypot(*differences)


def run(state: Any, amount: type, steps: list[Any]) -> None:
    divergence = state.spec.distance
    values: dict[Any, Any] = {}
    durable: dict[Any, Any] = {}
    for changes, theta, fate in steps:
        before = dict(values)
        state.begin()
        for how, updates in changes:
            cells = [cell for cell, _ in updates]
            amounts: Any = np.array([number for _, number in updates], amount)
            if isinstance(state.spec, Matrix):
                getattr(state, f"{how}_at")(np.array(cells, np.int64), amounts)
                names: list[Any] = cells
            else:
                names = [f"k{cell}".encode() for cell in cells]
                getattr(state, how)(pa.array(names, pa.binary()), amounts)
            for name, number in zip(names, amounts.tolist(), strict=True):
                values[name] = number if how == "put" else values.get(name, 0) + number
        state.settle()
        pairs = image(state.issue(theta))
        seen = {key: value for key, value in image(state.export()).items() if value != 0}
        assert seen == {key: value for key, value in values.items() if value != 0}
        after = {**durable, **pairs}
        assert image(state.dump()) == {key: value for key, value in after.items() if value != 0}
        assert separation(divergence, values, after) <= theta * (1 + 1e-15)
        if fate == "rolled back":
            state.rollback()
            values = before
        elif fate == "acknowledged":
            state.acknowledge()
            durable = after


@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("divergence", Divergence)
@given(batches(WHOLE))
def test_whole_numbers(divergence: Divergence, steps: list[Any]) -> None:
    run(HashTable(divergence=divergence).open(HeapColumns(), "s"), np.int64, steps)
    run(Matrix(rows=3, cols=4, divergence=divergence).open(HeapColumns(), "s"), np.int64, steps)


@settings(deadline=None, max_examples=150)
@pytest.mark.parametrize("divergence", Divergence)
@given(batches(REAL))
def test_real_numbers(divergence: Divergence, steps: list[Any]) -> None:
    run(HashTable(value="float64", divergence=divergence).open(HeapColumns(), "s"), np.float64, steps)
    run(
        Matrix(rows=3, cols=4, value="float64", divergence=divergence).open(HeapColumns(), "s"),
        np.float64,
        steps,
    )
