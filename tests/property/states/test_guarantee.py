"""The bound on divergence, and the incremental books, against a plain twin, for arbitrary updates of every
primitive.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.divergence import Divergence
from afspark.model.states import HashTable, HeapColumns, Matrix, Numeric, Set, StateSpec, Vector
from afspark.model.states.conformance import image, present
from tests.twins.states_twin import PlainState, separation

pytestmark = pytest.mark.some(3)

WHOLE = st.one_of(st.integers(-20, 20), st.integers(-(2**40), 2**40))
REAL = st.one_of(st.integers(-20, 20).map(float), st.floats(-1e12, 1e12))
THETAS = st.sampled_from([0.0, 0.3, 1.0, 3.0, 7.5, 1000.0, math.inf])
FATES = ["acknowledged", "acknowledged", "rebuilt", "lost", "rolled back"]


def batches(amount: st.SearchStrategy) -> st.SearchStrategy:
    how = st.sampled_from(["add", "put", "remove"])
    change = st.tuples(how, st.lists(st.tuples(st.integers(0, 11), amount), max_size=15))
    return st.lists(st.tuples(st.lists(change, max_size=3), THETAS, st.sampled_from(FATES)), max_size=8)


def specs(value: str) -> list[StateSpec]:
    found: list[StateSpec] = [Numeric(value=value)]
    for divergence in Matrix.divergences:
        found.append(Matrix(rows=3, cols=4, value=value, divergence=divergence))
        found.append(Vector(size=2, value=value, divergence=divergence))
    found += [HashTable(value=value, divergence=divergence) for divergence in HashTable.divergences]
    return found


def apply(state: Any, twin: PlainState, how: str, updates: list[tuple[int, Any]]) -> None:
    """One change to both; positions have no removal but zeros."""
    cells = [cell for cell, _ in updates]
    names: list[Any] = [f"k{cell}".encode() for cell in cells]
    match state.spec:
        case Numeric():
            for _, amount in updates:
                (state.add if how == "add" else state.put)(amount)
                (twin.add if how == "add" else twin.put)([(0, amount)])
        case Matrix() | Vector():
            amounts = [0 if how == "remove" else amount for _, amount in updates]
            (state.add_at if how == "add" else state.put_at)(
                np.array(cells, np.int64), np.array(amounts, state.values.dtype)
            )
            (twin.add if how == "add" else twin.put)(zip(cells, amounts, strict=True))
        case Set():
            (state.remove if how == "remove" else state.add)(pa.array(names, pa.binary()))
            twin.remove(names) if how == "remove" else twin.put((name, 1) for name in names)
        case HashTable() if how == "remove":
            state.remove(pa.array(names, pa.binary()))
            twin.remove(names)
        case HashTable():
            amounts = [amount for _, amount in updates]
            getattr(state, how)(pa.array(names, pa.binary()), np.array(amounts, state.spec.value))
            getattr(twin, how)(zip(names, amounts, strict=True))


def run(spec: StateSpec, steps: list[Any]) -> None:
    state: Any = spec.open(HeapColumns(), "s")
    twin = PlainState()
    divergence = spec.distance
    for changes, theta, fate in steps:
        state.begin()
        twin.begin()
        for how, updates in changes:
            apply(state, twin, how, updates)
        state.update_drift()
        check_books(state, twin.divergence(divergence))
        pairs = image(state.issue(theta))
        assert present(state.export()) == twin.present
        after = {**twin.durable, **pairs}
        assert present(state.dump()) == {key: value for key, value in after.items() if value != 0}
        assert separation(divergence, twin.values, after) <= theta * (1 + 1e-15)
        if fate == "rolled back":
            state.rollback()
            twin.rollback()
        elif fate != "lost":
            state.acknowledge()
            twin.acknowledge(pairs)
            check_books(state, twin.divergence(divergence))
        if fate == "rebuilt":
            state.rebuild()
            check_books(state, twin.divergence(divergence))
        if isinstance(spec, Vector):
            assert len(state) == max(spec.size, twin.length)


def check_books(state: Any, expected: float) -> None:
    """The running divergence is that of a full recomputation, by the state and by the twin."""
    assert math.isclose(state.divergence(), expected, rel_tol=1e-12, abs_tol=1e-150)
    if state.spec.distance is Divergence.MAX:
        assert state.drift() >= expected
    elif state.spec.distance is Divergence.KEYS:
        assert state.drift() == expected
    else:
        # Squares of up to 1e13 leave a rounding error of their size behind when they are taken out again.
        assert math.isclose(state.drift(), expected, rel_tol=1e-9, abs_tol=1e6)


@settings(max_examples=40)
@pytest.mark.parametrize("spec", [*specs("int64"), Set(), Set(key="string", exact=True)], ids=repr)
@given(steps=batches(WHOLE))
def test_whole_numbers(spec: StateSpec, steps: list[Any]) -> None:
    run(spec, steps)


@settings(max_examples=40)
@pytest.mark.parametrize("spec", specs("float64"), ids=repr)
@given(steps=batches(REAL))
def test_real_numbers(spec: StateSpec, steps: list[Any]) -> None:
    run(spec, steps)


@settings(max_examples=40)
@pytest.mark.parametrize("divergence", HashTable.divergences)
@given(steps=batches(st.integers(-3, 3)))
def test_small_whole_numbers_are_booked_exactly(divergence: Divergence, steps: list[Any]) -> None:
    state: Any = HashTable(divergence=divergence).open(HeapColumns(), "s")
    twin = PlainState()
    for changes, theta, _ in steps:
        state.begin()
        for how, updates in changes:
            apply(state, twin, how, updates)
        state.update_drift()
        twin.acknowledge(image(state.issue(theta)))
        state.acknowledge()
        if divergence is not Divergence.MAX:
            assert state.drift() == state.divergence()


SMALLEST, LARGEST = 5e-324, 1.7976931348623157e308
EXTREMES = st.sampled_from(
    [0.0, SMALLEST, 1e-310, 1e-200, 1e-170, 1e-162, 1e-155, 1e-149, 1.0, 1e149, 1e155, 1e200, LARGEST, math.inf]
)
LIMITS = st.sampled_from([0.0, SMALLEST, 1e-300, 1e-200, 1e-165, 1e-160, 1e-150, 1e-140, 1.0, 1e150, 1e160, 1e300])


def apart(divergence: Divergence, left: list[float], right: list[float]) -> float:
    """By the definition, in fractions: nothing underflows or overflows."""
    if any((one != other) and not math.isfinite(one - other) for one, other in zip(left, right, strict=True)):
        return math.inf
    exact = [abs(Fraction(one) - Fraction(other)) for one, other in zip(left, right, strict=True) if one != other]
    if not exact:
        return 0.0
    unit = max(exact)
    if divergence is Divergence.MAX:
        return float(unit)
    raised = sum((one / unit) ** divergence.power for one in exact)
    return float(unit) * divergence.norm(float(raised))


@settings(max_examples=300)
@pytest.mark.parametrize("divergence", Vector.divergences)
@given(steps=st.lists(st.tuples(st.lists(EXTREMES, min_size=4, max_size=4), LIMITS), min_size=1, max_size=6))
def test_differences_whose_squares_underflow_or_overflow(divergence: Divergence, steps: list[Any]) -> None:
    state: Any = Vector(size=4, value="float64", divergence=divergence).open(HeapColumns(), "s")
    durable = [0.0] * 4
    for values, theta in steps:
        state.begin()
        state.put_at(np.arange(4), np.array(values))
        told = state.divergence()
        assert math.isclose(told, apart(divergence, values, durable), rel_tol=1e-12)
        pairs = state.issue(theta)
        for cell, value in image(pairs).items():
            durable[cell] = value
        left = apart(divergence, values, durable)
        assert left <= theta * (1 + 1e-12)
        state.acknowledge()
        assert math.isclose(state.divergence(), left, rel_tol=1e-12)
