"""Learning in kernels against learning as it is defined, item by item in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.logistic import Lesson, Workspace, learn_dense, place_hashes, place_integers
from tests.twins import logistic_twin as twin
from tests.twins.hashing_twin import hash_int64

seeds = st.integers(0, 2**32)


def as_array(model: dict[int, float], cells: int) -> np.ndarray[Any, Any]:
    return np.array([model.get(cell, 0.0) for cell in range(cells)])


def agree(lesson: Lesson, plain: tuple[int, float], labels: np.ndarray[Any, Any]) -> None:
    assert (lesson.correct, lesson.bad, lesson.positives) == (plain[0], 0, np.count_nonzero(labels))
    assert lesson.loss == pytest.approx(plain[1], rel=1e-9)


@given(seed=seeds, rows=st.integers(0, 60), width=st.integers(1, 30), norm=st.sampled_from([1.0, 5.0, 100.0]))
def test_dense_rows_equal_the_definition(seed: int, rows: int, width: int, norm: float) -> None:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(rows, width)).astype(np.float32)
    labels = draw.integers(0, 2, rows).astype(np.uint8)
    model, plain = np.zeros(width + 1), {}
    items = [(int(y), [(k + 1, float(x)) for k, x in enumerate(row)]) for y, row in zip(labels, features, strict=True)]
    agree(
        learn_dense(labels, features, model, t=3, rate=0.7, norm=norm),
        twin.learn(plain, items, t=3, rate=0.7, norm=norm),
        labels,
    )
    assert model == pytest.approx(as_array(plain, width + 1), rel=1e-9, abs=1e-12)


@given(seed=seeds, rows=st.integers(0, 60), cells=st.sampled_from([3, 40, 1000]), parts=st.integers(1, 4))
def test_rows_of_ones_equal_the_definition_in_one_piece_or_several(
    seed: int, rows: int, cells: int, parts: int
) -> None:
    """Also where values of a row share a cell: such a feature counts twice."""
    draw = np.random.default_rng(seed)
    places = draw.integers(1, cells, (rows, 5)).astype(np.uint32)
    labels = draw.integers(0, 2, rows).astype(np.uint8)
    base = draw.normal(size=cells)
    plain = dict(enumerate(base.tolist()))
    expected = twin.learn(
        plain, [(int(y), [(int(j), 1.0) for j in row]) for y, row in zip(labels, places, strict=True)]
    )
    space, t, whole = Workspace.begin(base), 0, Lesson(0, 0, 0.0, 0)
    for part in np.array_split(np.arange(rows), parts):
        lesson = space.learn_ones(labels[part], places[part], t=t, rate=1.0)
        whole, t = Lesson(*(a + b for a, b in zip(whole, lesson, strict=True))), t + len(part)
    agree(whole, expected, labels)
    touched, values = space.changes()
    space.end()
    assert touched.tolist() == sorted({0, *places.ravel().tolist()})
    assert values == pytest.approx(as_array(plain, cells)[touched], rel=1e-9, abs=1e-12)


@given(seed=seeds, rows=st.integers(0, 40), norm=st.sampled_from([0.5, 100.0]))
def test_sparse_rows_equal_the_definition(seed: int, rows: int, norm: float) -> None:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(0, 6, rows)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    places = draw.integers(1, 50, offsets[-1]).astype(np.uint32)
    values = draw.normal(size=offsets[-1])
    labels = draw.integers(0, 2, rows).astype(np.uint8)
    items = [
        (int(labels[i]), [(int(places[k]), float(values[k])) for k in range(offsets[i], offsets[i + 1])])
        for i in range(rows)
    ]
    plain: dict[int, float] = {}
    space = Workspace.begin(np.zeros(50))
    agree(
        space.learn_sparse(labels, offsets, places, values, t=0, rate=1.0, norm=norm),
        twin.learn(plain, items, norm=norm),
        labels,
    )
    touched, found = space.changes()
    assert found == pytest.approx(as_array(plain, 50)[touched], rel=1e-9, abs=1e-12)


def test_rows_of_ones_are_sparse_rows() -> None:
    draw = np.random.default_rng(1)
    places = draw.integers(1, 1000, (300, 7)).astype(np.uint32)
    labels, base = draw.integers(0, 2, 300).astype(np.uint8), draw.normal(size=1000)
    ones, sparse = Workspace.begin(base), Workspace.begin(base)
    ones.learn_ones(labels, places, t=0, rate=1.0)
    offsets = np.arange(301) * 7
    sparse.learn_sparse(labels, offsets, places.reshape(-1), np.ones(2100), t=0, rate=1.0, norm=100.0)
    for mine, theirs in zip(ones.changes(), sparse.changes(), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e200])
def test_a_row_that_is_no_number_changes_nothing(odd: float) -> None:
    features = np.array([[1.0, 2.0], [odd, 0.0], [1.0, 1.0]])
    model, without = np.zeros(3), np.zeros(3)
    lesson = learn_dense(np.ones(3, np.uint8), features, model, t=0, rate=1.0, norm=10.0)
    learn_dense(np.ones(2, np.uint8), features[[0, 2]], without, t=0, rate=1.0, norm=10.0)
    assert lesson.bad == 1 and lesson.positives == 2
    assert model.tolist() == without.tolist()


def test_certain_and_wrong_costs_a_finite_loss() -> None:
    model = np.array([2000.0, 0.0])
    lesson = learn_dense(np.zeros(1, np.uint8), np.zeros((1, 1)), model, t=0, rate=1.0, norm=1.0)
    assert lesson.loss == pytest.approx(2000.0) and lesson.correct == 0


def test_many_losses_add_up_without_underflow() -> None:
    lesson = learn_dense(np.zeros(100_000, np.uint8), np.zeros((100_000, 1)), np.zeros(2), t=0, rate=1e-12, norm=1.0)
    assert lesson.loss == pytest.approx(100_000 * math.log(2), rel=1e-6)


@given(
    models=st.lists(st.tuples(st.integers(1, 9), st.dictionaries(st.integers(0, 11), st.floats(-5, 5))), min_size=1),
    seed=seeds,
)
def test_models_are_averaged_by_their_items(models: list[tuple[int, dict[int, float]]], seed: int) -> None:
    base = np.random.default_rng(seed).normal(size=12)
    expected = twin.merge(dict(enumerate(base.tolist())), models)
    total = sum(items for items, _ in models)
    space = Workspace.begin(base, merging=True)
    for items, model in models:
        index = np.array(list(model), np.uint32)
        space.add_model(index, np.array(list(model.values()), float), items / total)
    cells, values = space.changes()
    space.end()
    merged = base.copy()
    merged[cells] = values
    assert merged == pytest.approx(as_array(expected, 12), rel=1e-9, abs=1e-12)


def test_the_average_of_one_model_is_that_model() -> None:
    base, values = np.full(4, 0.1), np.array([1 / 3, 0.7])
    space = Workspace.begin(base, merging=True)
    space.add_model(np.array([1, 3], np.uint32), values, 1.0)
    cells, merged = space.changes()
    assert cells.tolist() == [1, 3] and merged.tolist() == values.tolist()


def test_two_workspaces_at_once_do_not_meet() -> None:
    base = np.zeros(100)
    first, second = Workspace.begin(base), Workspace.begin(base)
    one, places = np.ones(1, np.uint8), np.array([[5]], np.uint32)
    first.learn_ones(one, places, t=0, rate=1.0)
    second.learn_ones(one, places + 1, t=0, rate=1.0)
    assert first.changes()[0].tolist() == [0, 5] and second.changes()[0].tolist() == [0, 6]


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1), slots=st.integers(1, 2**31 - 2))
def test_values_are_placed_by_column(values: list[int], slots: int) -> None:
    matrix = np.array([values, values], np.int64)
    expected = [twin.place(value, column, slots, 7) for column, value in enumerate(values)]
    assert place_integers(matrix, slots=slots, first=7).tolist() == [expected, expected]
    out = np.empty(1, np.uint32)
    place_hashes(np.array([hash_int64(values[0])], np.uint64), number=0, slots=slots, first=7, out=out)
    assert out[0] == expected[0]


def test_places_are_fixed_for_all_times() -> None:
    """They are part of the contract with stored models."""
    assert place_integers(np.arange(4).reshape(2, 2), slots=1000).tolist() == [[GOLDEN[0], GOLDEN[1]], GOLDEN[2:]]


GOLDEN = [652, 943, 392, 593]
