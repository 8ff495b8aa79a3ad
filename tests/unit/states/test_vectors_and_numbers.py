"""Vectors that grow, and single numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.model.divergence import Divergence
from afspark.model.states import HeapColumns, Matrix, Numeric, StateLimit, Vector


def opened(spec: Any) -> Any:
    state = spec.open(HeapColumns(), "s")
    state.begin()
    return state


def test_a_vector_grows_by_use_and_shrinks_by_rollback() -> None:
    vector = opened(Vector(size=2))
    vector.add_at([5], 3)
    assert len(vector) == 6
    vector.update_drift()
    vector.issue(0)
    vector.acknowledge()
    vector.begin()
    vector.put_at([100, 3], [0, 4])
    vector.add_dense(np.arange(200))
    assert len(vector) == 200
    vector.rollback()
    assert vector.values.tolist() == [0, 0, 0, 0, 0, 3]
    vector.begin()
    vector.add_at([150], 0)
    assert vector.values.tolist() == [0, 0, 0, 0, 0, 3] + [0] * 145


def test_growing_one_by_one_is_not_quadratic() -> None:
    columns = HeapColumns()
    grown = 0
    grow = columns.grow

    def counting(name: str, length: int) -> Any:
        nonlocal grown
        grown += length > columns.length(name)
        return grow(name, length)

    columns.grow = counting  # type: ignore[method-assign]
    vector = Vector().open(columns, "s")
    vector.begin()
    for position in range(2000):
        vector.add_at([position], 1)
    assert grown < 100


@pytest.mark.parametrize("divergence", Vector.divergences)
def test_the_length_is_restored(divergence: Divergence) -> None:
    vector = opened(Vector(size=2, divergence=divergence))
    images = []
    for step, zero in enumerate((10, 20, 30, 30)):
        vector.put_at([step, zero], [7, 0])
        vector.update_drift()
        pairs = vector.issue(0.0 if step % 2 else 2.0)
        images.append(pairs)
        vector.acknowledge()
        assert vector.drift() == vector.divergence() == 0.0
        for backups in (images, [vector.dump()]):
            restored = Vector(size=2, divergence=divergence).open(HeapColumns(), "s")
            restored.restore(backups)
            assert restored.values.tolist() == vector.values.tolist()
            assert restored.dump().equals(vector.dump())
        vector.begin()
    assert images[0].to_pydict() == {"index": [0, 10], "value": [7, 0]}
    assert images[3].to_pydict() == {"index": [3], "value": [7]}


def test_a_last_cell_that_is_taken_along_leaves_the_books_right() -> None:
    vector = opened(Vector(divergence="manhattan"))
    vector.add_at([0, 1, 2], [10, 2, 1])
    vector.update_drift()
    # 10 alone would bring it under half the threshold.
    assert vector.issue(8.0).to_pydict() == {"index": [0, 2], "value": [10, 1]}
    vector.acknowledge()
    assert vector.drift() == vector.divergence() == 2.0


def test_a_vector_within_the_threshold_is_not_backed_up_for_its_length() -> None:
    vector = opened(Vector(size=1))
    vector.add_at([9], 2)
    vector.update_drift()
    assert vector.issue(2.0) is None
    assert vector.issue(0.0).num_rows == 1


def test_too_long_vectors_are_refused() -> None:
    vector = opened(Vector())
    with pytest.raises(StateLimit) as refused:
        vector.add_at([2**32 - 1], 1)
    assert refused.value.limit == 2**32 - 1
    vector.rollback()
    assert len(vector) == 0


def test_shares_of_different_lengths_add_up() -> None:
    left, right = opened(Vector(value="float64")), opened(Vector(value="float64"))
    left.add_dense(np.array([1.0, 2.0]))
    right.add_dense(np.array([0.5, 0.0, 0.5, 0.0]))
    left.merge_from(right.export())
    assert left.values.tolist() == [1.5, 2.0, 0.5, 0.0]
    grid = opened(Matrix(rows=1, cols=2))
    grid.merge_from(pa.record_batch({"index": [1, 1], "value": [2, 3]}))
    assert grid.values.tolist() == [[0, 5]]


@pytest.mark.parametrize("value", ["int64", "float64"])
def test_a_number(value: str) -> None:
    spec = Numeric(value=value, divergence="difference")
    assert spec == Numeric(value=value) and spec.distance is Divergence.MAX
    number = opened(spec)
    number.add(5)
    number.put(3)
    number.add(-1)
    assert number.value == 2 and isinstance(number.value, int if value == "int64" else float)
    number.update_drift()
    assert number.divergence() == 2.0
    assert number.issue(1.0).to_pydict() == {"index": [0], "value": [2]}
    number.rollback()
    assert number.value == 0
