"""States that fade."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.states import HashTable, HeapColumns, Matrix
from afspark.model.windows import Decayed, Decaying, needs_rebase, scale
from afspark.model.windows.specs import check_decayable

HALF = Decaying(0.5, 1, by="processing")


def opened(spec: Any) -> Any:
    state = spec.open(HeapColumns(), "s")
    state.begin()
    return state


def test_factors_of_any_distance() -> None:
    assert scale(HALF, 3, 3) == 1
    assert scale(HALF, 0, 2000) == scale(HALF, -(10**18), 10**18) == math.inf
    assert scale(HALF, 2000, 0) == 0 and needs_rebase(HALF, 2000, 0)
    assert not needs_rebase(HALF, 330, 0) and needs_rebase(HALF, 340, 0)
    assert not needs_rebase(HALF, 0, 340)


def test_only_real_numbers_decay() -> None:
    check_decayable(Matrix(rows=1, cols=2, value="float64"))
    for spec in (HashTable(), Matrix(rows=1, cols=2)):
        with pytest.raises(UsageError) as refused:
            check_decayable(spec)
        assert refused.value.value == "int64" and "float64" in refused.value.remedy
        with pytest.raises(UsageError):
            Decayed(opened(spec), 1.0)


@pytest.mark.parametrize("factor", [-1.0, math.nan])
def test_factors_that_are_none(factor: float) -> None:
    with pytest.raises(UsageError):
        Decayed(opened(HashTable(value="float64")), factor)


def test_a_state_that_has_faded_away_shows_nothing_and_takes_nothing() -> None:
    table = opened(HashTable(value="float64"))
    table.add(["a"], [1e300])
    view = Decayed(table, 0.0)
    assert view.get(["a"]).tolist() == [0] and view.export().num_rows == 0 and view.divergence() == 0
    with pytest.raises(UsageError):
        view.add(["a"], [1.0])


def test_an_item_from_long_ago_adds_nothing_and_reads_no_more_than_a_float() -> None:
    table = opened(HashTable(value="float64"))
    table.add(["a", "b"], [2.0, -2.0])
    view = Decayed(table, math.inf)
    view.add(["a", "c"], [1.0, 1.0])
    largest = sys.float_info.max
    assert table.get(["a", "c"]).tolist() == [2, 0]
    assert view.get(["a", "b", "c"]).tolist() == [largest, -largest, 0]


def test_tables() -> None:
    table = opened(HashTable(value="float64"))
    view = Decayed(table, 0.25)
    view.add(["a", "b"], [1, 2])
    view.add(pa.array(["a"]), values=pa.array([1.0]))
    view.put(["c"], 5.0)
    assert view.get(["a", "b", "c", "d"]).tolist() == [2, 2, 5, 0]
    assert table.get(["a", "b", "c"]).tolist() == [8, 8, 20]
    assert view.contains(["a", "d"]).tolist() == [True, False]
    assert view.export().to_pydict() == {"key": [b"a", b"b", b"c"], "value": [2, 2, 5]}
    assert view.changed().schema.equals(table.spec.pairs_schema)
    assert len(view) == 3 and view.spec == table.spec
    table.update_drift()
    assert view.divergence() == view.drift() == 5
    with pytest.raises(UsageError):
        view.add(["a"], ["x"])


def test_matrices() -> None:
    matrix = opened(Matrix(rows=2, cols=2, value="float64"))
    view = Decayed(matrix, 0.5)
    view.add_at([0, 3], 1)
    view.put_at([1], [7])
    view.add_dense(np.ones((2, 2)))
    assert view.values.tolist() == [[2, 8], [1, 2]]
    assert matrix.values.tolist() == [[4, 16], [2, 4]]


def test_a_single_number() -> None:
    class Number:
        spec = HashTable(value="float64")
        value = 0.0

        def add(self, amount: float) -> None:
            self.value += float(amount)

    number = Number()
    Decayed(number, 0.5).add(3)
    assert number.value == 6 and Decayed(number, 0.25).value == 1.5
