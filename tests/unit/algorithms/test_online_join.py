"""OnlineJoin on a worker of its own, against a join in plain Python."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import OnlineJoin
from afspark.algorithms.bad_rows import skipped_rows
from afspark.errors import UsageError
from afspark.model.preconditions import check_operator
from afspark.policies import Approximate, MiniBatch, Tolerance
from tests.unit.algorithms.alone import Alone
from tests.unit.bounds.papers import join_error

Item = tuple[int, int, int]
"""Key, second, value."""
items = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(-3, 9)), max_size=12)
#: per batch: items of both streams
histories = st.lists(st.tuples(items, items), min_size=1, max_size=5)


def batch(left: list[Item], right: list[Item]) -> pa.RecordBatch:
    both = [*left, *right]
    columns = {name: pa.array([item[at] for item in both], pa.int64()) for at, name in enumerate(("k", "s", "v"))}
    side = pa.array([0] * len(left) + [1] * len(right), pa.int8())
    return pa.record_batch({**columns, "side": side})


def join(**settings: Any) -> OnlineJoin:
    return OnlineJoin(**{"on": ("k", "s"), "rate": 1, "value": "v", **settings})


def pairs(left: list[Item], right: list[Item]) -> list[Item]:
    """The left item of every pair."""
    return [one for one in left for other in right if one[:2] == other[:2]]


def run(operator: OnlineJoin, history: list[tuple[list[Item], list[Item]]], tolerance: Tolerance) -> Alone:
    alone = Alone(operator, tolerance)
    for left, right in history:
        alone.apply([batch(left, right)])
    return alone


def estimates(*workers: Alone) -> dict[str, dict[str, Any]]:
    rows = workers[0].operator.results([one.share() for one in workers]).to_pylist()
    return {row.pop("aggregate"): row for row in rows}


@given(history=histories)
def test_with_every_item_the_join_is_exact(history: list[tuple[list[Item], list[Item]]]) -> None:
    left, right = ([item for step in history for item in step[side]] for side in (0, 1))
    found = pairs(left, right)
    rows = estimates(run(join(), history, MiniBatch()))
    assert rows["count"]["estimate"] == rows["count"]["low"] == rows["count"]["high"] == len(found)
    assert rows["sum"]["estimate"] == pytest.approx(sum(item[2] for item in found))
    if found:
        assert rows["average"]["estimate"] == pytest.approx(sum(item[2] for item in found) / len(found))
    else:
        assert math.isnan(rows["average"]["estimate"])
    assert rows["count"]["samples"] == len(left) + len(right)


@given(history=histories, cut=st.integers(0, 5))
def test_local_shares_add_up(history: list[tuple[list[Item], list[Item]]], cut: int) -> None:
    together = estimates(run(join(), history, MiniBatch()))
    apart = estimates(run(join(), history[:cut], MiniBatch()), run(join(), history[cut:], MiniBatch()))
    assert [row["pairs"] for row in apart.values()] == [row["pairs"] for row in together.values()]
    assert apart["sum"]["estimate"] == pytest.approx(together["sum"]["estimate"])


@given(history=histories)
def test_every_match_is_sent_once(history: list[tuple[list[Item], list[Item]]]) -> None:
    operator = join(matches=True, value=None)
    alone = Alone(operator, MiniBatch())
    sent: Counter[tuple[int, int]] = Counter()
    for left, right in history:
        for state in alone.states.values():
            state.begin()
        part = operator.process(operator.sample(batch(left, right)), alone.states)
        assert part is not None and part.num_rows <= len(left) + len(right)
        for row in part.to_pylist():
            sent[row["k"], row["s"]] += row["partners"]
    left, right = ([item for step in history for item in step[side]] for side in (0, 1))
    assert sent == Counter(item[:2] for item in pairs(left, right))


@given(history=histories, failing=st.sets(st.integers(0, 4)), theta=st.integers(0, 30))
def test_failures_take_no_more_samples_than_allowed(
    history: list[tuple[list[Item], list[Item]]], failing: set[int], theta: int
) -> None:
    alone, taken = Alone(join(), Approximate(theta)), [0, 0]
    for number, (left, right) in enumerate(history):
        alone.apply([batch(left, right)])
        taken = [taken[0] + len(left), taken[1] + len(right)]
        if number in failing:
            alone.fail()
    row = estimates(alone)["count"]
    assert 0 <= sum(taken) - row["samples"] <= row["lost"] <= 2 * theta


def test_losses_widen_the_interval_as_the_theorem_says() -> None:
    rng = np.random.default_rng(7)
    sides = [[(int(k), 0, 1) for k in rng.integers(0, 50, 2000)] for _ in range(2)]
    alone = run(join(rate=0.5, value=None), [(sides[0], sides[1])], MiniBatch())
    before = estimates(alone)["count"]
    alone.missing["left"] = alone.missing["right"] = 100.0
    after = estimates(alone)["count"]
    present = before["samples"]
    wider = join_error(present + 200, theta=200) / join_error(present + 200)
    assert after["estimate"] == before["estimate"] and after["lost"] == 200
    assert after["estimate"] - after["low"] == pytest.approx((before["estimate"] - before["low"]) * wider)
    # A tenth of each sample gone would mean an estimate that is a fifth too low.
    assert after["high"] > before["high"] * 1.15


def test_draws_are_the_same_when_items_are_read_again() -> None:
    operator = join(rate=0.3)
    some = batch([(k, 0, k) for k in range(100)], [(k, 0, 0) for k in range(100)])
    assert operator.sample(some).equals(join(rate=0.3).sample(some))
    assert not operator.sample(some).equals(join(rate=0.3, seed=1).sample(some))
    marks = operator.sample(some).column("side").to_pylist()
    assert 0 < marks.count(0) < 100 and 0 < marks.count(1) < 100


def test_numbered_items_are_drawn_alike_however_they_are_batched() -> None:
    operator = join(rate=0.3, number="v", value=None)
    some = batch([(1, 0, n) for n in range(200)], [])
    parts = pa.concat_batches([operator.sample(some.slice(at, 20)) for at in range(0, 200, 20)])
    assert parts.equals(operator.sample(some))
    assert 30 <= parts.num_rows <= 90


def test_rates_may_differ() -> None:
    sampled = join(rate=(1.0, 0.1)).sample(batch([(1, 0, 0)] * 100, [(1, 0, 0)] * 100))
    counts = Counter(sampled.column("side").to_pylist())
    assert counts[0] == 100 and 0 < counts[1] < 30


BAD = pa.record_batch(
    {
        "k": pa.array([1, None, 1, 1, 1, 1], pa.int64()),
        "s": pa.array([0, 0, None, 0, 0, 0], pa.int64()),
        "v": pa.array([1.0, 1.0, 1.0, math.nan, None, None]),
        "side": pa.array([0, 0, 1, 0, 0, 1], pa.int8()),
    }
)


def test_bad_rows_are_skipped_and_counted() -> None:
    alone = Alone(join(), MiniBatch())
    alone.apply([BAD])
    assert skipped_rows([alone.share()]) == 4
    assert estimates(alone)["count"]["estimate"] == 1


def test_bad_rows_stop_the_query_if_wished() -> None:
    with pytest.raises(UsageError) as caught:
        Alone(join(on_bad="stop"), MiniBatch()).apply([BAD])
    assert caught.value.rows == 4


def test_steps_mark_the_streams() -> None:
    operator = join()
    left = pa.record_batch({"k": [1], "s": [2], "v": [3.0], "more": ["x"]})
    right = pa.record_batch({"k": [1], "s": [2]})
    assert operator.left(left).to_pylist() == [{"k": 1, "s": 2, "v": 3.0, "side": 0}]
    assert operator.right(right).to_pylist() == [{"k": 1, "s": 2, "side": 1}]
    alone = Alone(operator, MiniBatch())
    alone.apply([operator.left(left), operator.right(right)])
    assert estimates(alone)["sum"]["estimate"] == 3.0
    for step, rows, column in ((operator.left, right, "v"), (operator.right, right.select(["k"]), "s")):
        with pytest.raises(UsageError) as caught:
            step(rows)
        assert caught.value.column == column


def test_texts_and_times_can_be_joined() -> None:
    rows = pa.record_batch({"host": ["a", "b", "a"], "day": pa.array([1, 1, 1], pa.date32()), "side": [0, 0, 1]})
    alone = Alone(OnlineJoin(on=("host", "day"), rate=1), MiniBatch())
    alone.apply([rows])
    assert estimates(alone)["count"]["estimate"] == 1


@pytest.mark.parametrize("value", [None, "v"])
def test_precondition(value: str | None) -> None:
    rng = np.random.default_rng(1)
    some = [(int(k), int(k) % 2, int(k)) for k in rng.integers(0, 9, 120)]
    report = check_operator(join(rate=0.7, value=value), [batch(some[:60], some[60:]), batch(some[60:], some[:60])])
    report.raise_if_broken()
    assert report.observed["left"] == 1.0 and report.unchecked == ()


@pytest.mark.parametrize("rate", [0, -0.1, 1.5, math.nan, (0.1, 0), (2, 1)])
def test_rates_outside_0_1_are_refused_in_one_line(rate: Any) -> None:
    with pytest.raises(UsageError) as caught:
        join(rate=rate)
    assert hasattr(caught.value, "rate") and "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"on": ()}, {"confidence": 1}, {"confidence": 0}, {"on_bad": "x"}])
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        join(**wrong)


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (pa.schema([("k", pa.int64()), ("s", pa.int64()), ("v", pa.int64())]), "side"),
        (pa.schema([("k", pa.int64()), ("v", pa.int64()), ("side", pa.int8())]), "s"),
        (pa.schema([("k", pa.int64()), ("s", pa.int64()), ("v", pa.string()), ("side", pa.int8())]), "v"),
        (pa.schema([("k", pa.list_(pa.int8())), ("s", pa.int64()), ("v", pa.int8()), ("side", pa.int8())]), "k"),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(schema: pa.Schema, column: str) -> None:
    with pytest.raises(UsageError) as caught:
        join().check(schema)
    assert caught.value.column == column


def test_fingerprints_tell_settings_apart() -> None:
    kinds = [join(), join(rate=0.5), join(value=None), join(seed=3), join(on=("k",)), join(number="v")]
    assert len({str(operator.fingerprint()) for operator in kinds}) == len(kinds)
