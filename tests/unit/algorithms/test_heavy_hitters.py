"""Heavy hitters: none is ever missed, whatever fails; estimates never lie below the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import HeavyHitters
from afspark.algorithms.bad_rows import skipped_rows
from afspark.algorithms.heavy_hitters import decode_keys, encode_keys
from afspark.errors import UsageError
from afspark.policies import Approximate, MiniBatch, Tolerance
from tests.unit.algorithms.alone import Alone

Rows = list[tuple[int, int]]
rows = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=25)
#: per batch: the rows of both workers, and which of them fail afterwards
histories = st.lists(st.tuples(rows, rows, st.sets(st.integers(0, 1))), min_size=1, max_size=6)


def operator(threshold: float = 60, **settings: Any) -> HeavyHitters:
    made = HeavyHitters(keys=("key",), weight="weight", threshold=threshold, **{"columns": 64, **settings})
    made.check(pa.schema([("key", pa.int64()), ("weight", pa.int64())]))
    return made


def batch(items: Rows) -> pa.RecordBatch:
    return pa.record_batch(
        {"key": pa.array([k for k, _ in items], pa.int64()), "weight": pa.array([w for _, w in items], pa.int64())}
    )


def run(history: list[tuple[Rows, Rows, set[int]]], tolerance: Tolerance) -> tuple[list[Alone], Counter[int]]:
    pair = [Alone(operator(), tolerance, worker=worker, workers=2) for worker in range(2)]
    truth: Counter[int] = Counter()
    for left, right, failing in history:
        for worker, items in enumerate((left, right)):
            pair[worker].apply([batch(items)])
            for key, weight in items:
                truth[key] += weight
        for worker in failing:
            pair[worker].fail()
    return pair, truth


@given(history=histories, tolerance=st.sampled_from([MiniBatch(), Approximate(20.0), Approximate(50.0)]))
def test_recall_is_one_and_no_estimate_is_too_low(
    history: list[tuple[Rows, Rows, set[int]]], tolerance: Tolerance
) -> None:
    pair, truth = run(history, tolerance)
    table = operator().results([alone.share() for alone in pair]).to_pylist()
    found = {row["key"]: row["estimate"] for row in table}
    assert {key for key, size in truth.items() if size >= 60} <= found.keys()
    assert all(found[key] >= truth[key] for key in found)
    assert all(row["bound"] == sum(alone.missing["sketch"] for alone in pair) for row in table)


@given(
    history=histories,
    lost=st.lists(st.sets(st.integers(0, 24), max_size=2), min_size=12, max_size=12),
    tolerance=st.sampled_from([MiniBatch(), Approximate(20.0)]),
)
def test_no_heavy_key_is_missed_if_items_are_lost_as_well(
    history: list[tuple[Rows, Rows, set[int]]], lost: list[set[int]], tolerance: Tolerance
) -> None:
    """Items that never came are known by their number alone: each may have weighed the most."""
    largest, losable = 40.0, 2 * len(history)
    pair = [
        Alone(operator(largest=largest), tolerance, worker=worker, workers=2, losable_items=losable)
        for worker in range(2)
    ]
    truth: Counter[int] = Counter()
    gone = [0, 0]
    for number, (left, right, failing) in enumerate(history):
        for worker, items in enumerate((left, right)):
            kept = [item for place, item in enumerate(items) if place not in lost[2 * number + worker]]
            gone[worker] += len(items) - len(kept)
            pair[worker].apply([batch(kept)])
            for key, weight in items:
                truth[key] += weight
        for worker in failing:
            pair[worker].fail()
    shares = [alone.share() for alone in pair]
    shares = [
        replace(one, missing={name: most + largest * gone[one.worker] for name, most in one.missing.items()})
        for one in shares
    ]
    found = {row["key"]: row["estimate"] for row in operator(largest=largest).results(shares).to_pylist()}
    assert {key for key, size in truth.items() if size >= 60} <= found.keys()
    assert all(found[key] >= truth[key] for key in found)


@pytest.mark.parametrize("on_bad", ["skip", "stop"])
def test_no_item_may_weigh_more_than_the_largest(on_bad: str) -> None:
    alone = Alone(operator(threshold=50, largest=50, on_bad=on_bad), MiniBatch())
    items = batch([(1, 50), (1, 51), (2, 49)])
    if on_bad == "stop":
        with pytest.raises(UsageError, match="above 50"):
            alone.apply([items])
        return
    alone.apply([items])
    assert skipped_rows([alone.share()]) == 1
    assert operator(threshold=50, largest=50).results([alone.share()]).column("estimate").to_pylist() == [50]


@pytest.mark.parametrize("largest", [0, -1, float("nan"), float("inf")])
def test_a_largest_weight_is_a_number_above_zero(largest: float) -> None:
    with pytest.raises(UsageError, match="largest weight"):
        operator(largest=largest)


def test_without_failures_rare_keys_are_not_reported() -> None:
    pair, _ = run([([(1, 100), (2, 3)], [(1, 50), (3, 4)], set())], MiniBatch())
    table = operator().results([alone.share() for alone in pair])
    assert table.to_pylist() == [{"key": 1, "estimate": 150, "bound": 0.0}]


def test_results_are_sorted_by_estimate() -> None:
    pair, _ = run([([(1, 70), (2, 90)], [(3, 80)], set())], MiniBatch())
    table = operator().results([alone.share() for alone in pair])
    assert table.column("key").to_pylist() == [2, 3, 1]


def test_a_worker_without_candidates_gives_an_empty_table_with_columns() -> None:
    alone = Alone(operator(), MiniBatch())
    alone.apply([batch([])])
    table = operator().results([alone.share()])
    assert table.num_rows == 0 and table.column_names == ["key", "estimate", "bound"]


def test_float_weights() -> None:
    made = HeavyHitters(keys=("key",), weight="weight", threshold=1.0, value="float64", columns=64)
    alone = Alone(made, MiniBatch())
    alone.apply([pa.record_batch({"key": ["a", "b", "a"], "weight": [0.5, 0.25, 0.75]})])
    assert made.results([alone.share()]).to_pylist() == [{"key": "a", "estimate": 1.25, "bound": 0.0}]


@pytest.mark.parametrize("weights", [[1, None], [-1, 2]], ids=["missing", "negative"])
def test_weights_that_are_no_weights_are_refused(weights: list[int | None]) -> None:
    alone = Alone(operator(), MiniBatch())
    with pytest.raises(UsageError) as caught:
        alone.apply([pa.record_batch({"key": [1, 2], "weight": pa.array(weights, pa.int64())})])
    assert caught.value.column == "weight"


def test_such_rows_are_skipped_and_counted_if_wished() -> None:
    made = operator(on_bad="skip")
    alone = Alone(made, MiniBatch())
    alone.apply([pa.record_batch({"key": [1, 2, 1, 3], "weight": pa.array([70, None, 30, -5], pa.int64())})])
    alone.apply([batch([(1, 1)])])
    assert made.results([alone.share()]).to_pylist() == [{"key": 1, "estimate": 101, "bound": 0.0}]
    assert skipped_rows([alone.share()]) == 2


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, -(2**60)]),
        pa.array([1.5, None]),
        pa.array(["x", 'quote"\\ü']),
        pa.array([True, False]),
        pa.array([date(2020, 1, 1), None]),
        pa.array([datetime(2020, 1, 1, 12, 30), datetime(1969, 1, 1)], pa.timestamp("us")),
    ],
    ids=lambda column: str(column.type),
)
def test_keys_of_every_kind_come_back(column: pa.Array) -> None:
    keys = pa.table({"k": column, "n": pa.array([1, 2])})
    texts = [text.encode() for text in encode_keys(keys)]
    assert decode_keys(texts, ["k", "n"], [column.type, pa.int64()]).equals(keys)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (pa.schema([("weight", pa.int64())]), "key"),
        (pa.schema([("key", pa.int64())]), "weight"),
        (pa.schema([("key", pa.int64()), ("weight", pa.string())]), "weight"),
        (pa.schema([("key", pa.int64()), ("weight", pa.float64())]), "weight"),
        (pa.schema([("key", pa.list_(pa.int64())), ("weight", pa.int64())]), "key"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(schema: pa.Schema, column: str) -> None:
    with pytest.raises(UsageError) as caught:
        HeavyHitters(keys=("key",), weight="weight", threshold=1).check(schema)
    assert caught.value.column == column


@pytest.mark.parametrize("threshold", [0, -1, float("nan"), float("inf")])
def test_thresholds_that_mean_nothing_are_refused(threshold: float) -> None:
    with pytest.raises(UsageError):
        HeavyHitters(keys=("key",), weight="weight", threshold=threshold)


def test_keys_are_needed() -> None:
    with pytest.raises(UsageError):
        HeavyHitters(keys=(), weight="weight", threshold=1)
