"""The search for bad rows: whoever raises alone, and whoever raises together with others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import CheckpointError, NoSpace, OperatorMisuse, StoreError, UsageError
from afspark.model.states import StateFull, StateLimit
from afspark.task.isolation import NULL_KEY, Chooser, Rows, culprits, fault_of_items


class Trier:
    """Raises for certain rows, and for the second of each pair if the first is there."""

    def __init__(self, bad: set[int], pairs: set[tuple[int, int]] = frozenset()) -> None:  # type: ignore[assignment]
        self.bad, self.pairs, self.rows = bad, pairs, 0

    def __call__(self, rows: Rows) -> Exception | None:
        self.rows += len(rows)
        given_rows = set(rows.tolist())
        alone = sorted(given_rows & self.bad)
        if alone:
            return ValueError(alone[0])
        together = sorted(pair for pair in self.pairs if set(pair) <= given_rows)
        return KeyError(together[0]) if together else None


@given(st.integers(0, 200), st.data())
def test_exactly_the_rows_that_raise_alone_are_found_in_order(total: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, max(total - 1, 0)), max_size=min(total, 20)))
    found = list(culprits(np.arange(total), Trier(bad)))
    assert [culprit.row for culprit in found] == sorted(bad)
    assert all(culprit.error.args == (culprit.row,) and culprit.kind == "ValueError" for culprit in found)


@given(st.integers(2, 60), st.data())
def test_without_what_was_found_the_rest_never_raises(total: int, data: st.DataObject) -> None:
    row = st.integers(0, total - 1)
    bad = data.draw(st.sets(row, max_size=5))
    pairs = data.draw(st.sets(st.tuples(row, row).filter(lambda pair: pair[0] < pair[1]), max_size=5))
    attempt = Trier(bad, pairs)
    found = {culprit.row for culprit in culprits(np.arange(total), attempt)}
    assert attempt(np.array(sorted(set(range(total)) - found), np.int64)) is None
    assert bad <= found and len(found) <= len(bad) + len(pairs)


def test_nobody_is_blamed_for_what_is_raised_without_any_row() -> None:
    assert list(culprits(np.arange(10), lambda rows: ValueError("always"))) == []


def test_one_bad_row_of_many_costs_a_few_times_the_whole() -> None:
    attempt = Trier({71_234})
    assert [culprit.row for culprit in culprits(np.arange(100_000), attempt)] == [71_234]
    assert attempt.rows < 4 * 100_000


def test_null_keys_are_bad_together_if_the_first_of_them_is() -> None:
    suspects = np.arange(0, 100_000, 2)
    attempt = Trier(set(suspects.tolist()) | {7})
    found = list(culprits(np.arange(100_000), attempt, suspects))
    assert [culprit.row for culprit in found if culprit.kind == NULL_KEY] == suspects.tolist()
    assert [culprit.row for culprit in found if culprit.kind != NULL_KEY] == [7]
    assert attempt.rows < 4 * 100_000
    assert list(culprits(np.arange(10), Trier(set()), np.arange(3))) == []


@given(st.lists(st.integers(0, 5), max_size=6), st.data())
def test_a_chooser_gives_the_chosen_rows_of_each_batch(sizes: list[int], data: st.DataObject) -> None:
    total = sum(sizes)
    rows = sorted(data.draw(st.sets(st.integers(0, max(total - 1, 0)), max_size=total)))
    chooser = Chooser(np.array(rows, np.int64))
    first, given_out = 0, []
    for size in sizes:
        given_out += chooser.of(pa.record_batch({"n": pa.array(range(first, first + size))})).column("n").to_pylist()
        first += size
    assert given_out == rows


@pytest.mark.parametrize(
    ("error", "theirs"),
    [
        (ValueError("x"), True),
        (pa.ArrowInvalid("x"), True),
        (UsageError("Keys hold 1 nulls."), True),
        (OperatorMisuse("sends items to nobody"), False),
        (StateLimit("a sum left int64"), True),
        (StateFull("too many keys"), False),
        (FileNotFoundError("x"), False),
        (MemoryError(), False),
        (StoreError("x"), False),
        (NoSpace("x"), False),
        (CheckpointError("x"), False),
    ],
)
def test_what_an_item_can_be_blamed_for(error: Exception, theirs: bool) -> None:
    assert fault_of_items(error) is theirs
