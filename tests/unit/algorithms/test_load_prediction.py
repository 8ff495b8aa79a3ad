"""Loads of plugs and their prediction, on a worker of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.algorithms import LoadPrediction, LoadReadings
from afspark.algorithms.load_forecasts import medians
from afspark.errors import UsageError
from afspark.model.preconditions import check_operator
from afspark.policies import Approximate, MiniBatch
from tests.twins import loads_twin as twin
from tests.twins.loads_twin import Place, Reading
from tests.unit.algorithms.alone import Alone

HOURS = 3600
readings = st.builds(
    Reading,
    time=st.integers(0, 4 * 24).map(lambda hour: hour * HOURS + 60.0),
    house=st.integers(0, 1),
    household=st.integers(0, 1),
    plug=st.integers(0, 1),
    load=st.integers(0, 4096).map(float),
)
some = st.lists(readings, max_size=30).map(sorted)


def items(rows: Sequence[Reading]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [[]] * 5
    kinds = [pa.float64(), pa.int64(), pa.int64(), pa.int64(), pa.float64()]
    return pa.record_batch(
        [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)], names=list(Reading._fields)
    )


def told(table: pa.Table) -> dict[Place, dict[str, Any]]:
    rows = table.to_pylist()
    found = {Place(*(row[name] for name in Place._fields)): row for row in rows}
    assert len(found) == len(rows)
    return found


def newest(expected: dict[Place, twin.Forecast]) -> dict[Place, twin.Forecast]:
    """The predictions from the newest slice of each house."""
    last: dict[tuple[int, int], int] = {}
    for place in expected:
        last[place.minutes, place.house] = max(place.start, last.get((place.minutes, place.house), 0))
    return {place: one for place, one in expected.items() if place.start == last[place.minutes, place.house]}


def same(row: dict[str, Any], one: twin.Forecast) -> bool:
    past = (row["past"] is None) == (one.past is None) and math.isclose(row["past"] or 0.0, one.past or 0.0)
    numbers = ((row["load"], one.load), (row["prediction"], one.prediction))
    return past and row["days"] == one.days and all(math.isclose(*pair) for pair in numbers)


@given(batches=st.lists(some, max_size=4), minutes=st.sampled_from([(60,), (60, 120), (30, 360)]))
def test_predictions_are_those_of_the_twin(batches: list[list[Reading]], minutes: tuple[int, ...]) -> None:
    alone = Alone(LoadPrediction(minutes=minutes, days=4), MiniBatch())
    for rows in batches:
        alone.apply([items(rows)])
    got = told(alone.operator.results([alone.share()]))
    expected = newest(twin.forecasts([row for rows in batches for row in rows], minutes, 4))
    assert got.keys() == expected.keys()
    assert all(same(got[place], one) for place, one in expected.items())
    assert all(row["low"] == row["prediction"] == row["high"] for row in got.values())


@given(
    batches=st.lists(some, min_size=1, max_size=5),
    failing=st.sets(st.integers(0, 4)),
    theta=st.sampled_from([0, 1, 4, 40]),
)
def test_after_failures_the_exact_prediction_is_inside_what_is_told(
    batches: list[list[Reading]], failing: set[int], theta: int
) -> None:
    alone = Alone(LoadPrediction(minutes=(60, 360), days=4), Approximate(theta))
    for number, rows in enumerate(batches):
        alone.apply([items(rows)])
        if number in failing:
            alone.fail()
    assert alone.missing["readings"] <= theta and alone.missing["load"] <= theta
    assert alone.missing["plugs"] == alone.missing["newest"] == 0
    exact = twin.forecasts([row for rows in batches for row in rows], (60, 360), 4)
    got = told(alone.operator.results([alone.share()]))
    # The newest slice is known, whatever was lost; only what was lost of it altogether has no row.
    assert got.keys() <= newest(exact).keys()
    slack = 1e-9
    for place, row in got.items():
        assert row["low"] - slack <= exact[place].prediction <= row["high"] + slack
        assert row["low"] - slack <= row["prediction"] <= row["high"] + slack


def test_what_is_not_there_may_have_been_lost_since_a_plug_first_reported() -> None:
    day = 24 * HOURS
    alone = Alone(LoadPrediction(minutes=(60,), days=3), Approximate(8))
    alone.apply([items([Reading(day + 2 * HOURS, 0, 0, 0, 100.0)] * 30)])
    alone.fail()
    alone.apply([items([Reading(2 * day, 0, 0, 0, 50.0)] * 30)])
    (row,) = (row for row in alone.operator.results([alone.share()]).to_pylist() if row["plug"] == 0)
    assert row["days"] == 1 and row["past"] == pytest.approx(100, abs=40)
    # Two days before the plug was not there yet; had it been, half of the highest load would be possible.
    assert row["high"] < 1000 and row["low"] > 20


def test_old_days_are_forgotten_and_not_missed() -> None:
    rows = [Reading(day * 24 * HOURS + hour * HOURS, 0, 0, 0, 10.0 * day) for day in range(9) for hour in (0, 12)]
    alone = Alone(LoadPrediction(minutes=(60, 120), days=2), MiniBatch())
    for row in rows:
        alone.apply([items([row])])
    assert len(alone.states["readings"]) == len(alone.states["load"]) == 2 * 2 * 3
    got = told(alone.operator.results([alone.share()]))
    expected = newest(twin.forecasts(rows, (60, 120), 2))
    assert got.keys() == expected.keys() and all(same(got[place], one) for place, one in expected.items())


def test_shares_of_workers_add_up() -> None:
    rows = [
        Reading(hour * HOURS, house, 0, plug, 7.0 * plug + hour)
        for hour in range(30)
        for house in (0, 1)
        for plug in (0, 1)
    ]
    alone = [Alone(LoadPrediction(minutes=(60,)), MiniBatch(), worker=worker, workers=2) for worker in range(2)]
    for worker, one in enumerate(alone):
        one.apply([items(rows[worker::2])])
    got = told(LoadPrediction(minutes=(60,)).results([one.share() for one in alone]))
    expected = newest(twin.forecasts(rows, (60,), 7))
    assert got.keys() == expected.keys() and all(same(got[place], one) for place, one in expected.items())


def test_it_meets_the_precondition_of_approximation() -> None:
    rows = [Reading(hour * HOURS, 0, 0, hour % 3, 4096.0 if hour % 2 else 3.0) for hour in range(50)]
    found = check_operator(LoadPrediction(minutes=(60, 120)), [items(rows)])
    found.raise_if_broken()
    assert found.observed["readings"] == 1.0 and found.observed["load"] == 16.0 == LoadPrediction().alpha


@given(
    columns=st.lists(
        st.lists(st.tuples(st.floats(0, 100), st.booleans()), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
def test_medians(columns: list[list[tuple[float, bool]]]) -> None:
    values, counted = (np.array([[pair[part] for pair in column] for column in columns]).T for part in (0, 1))
    expected = [float(np.median([value for value, counts in column if counts] or [0.0])) for column in columns]
    assert medians(values, counted.astype(bool)).tolist() == pytest.approx(expected)


def test_the_conversion_keeps_loads_and_counts_what_it_cannot_use() -> None:
    nan = math.nan
    rows = {
        "id": [0] * 10,
        "timestamp": [5.0, 5.0, 5.0, nan, 5.0, 5.0, 5.0, -1.0, 5.0, 5.0],
        "value": [20.5, 900.0, nan, 1.0, 4097.0, -1.0, 3.0, 3.0, 0.0, 1.0],
        "property": [1, 0, 1, 1, 1, 1, 2, 1, 1, 1],
        "plug_id": [1.0] * 9 + [1.5],
        "household_id": [2] * 10,
        "house_id": [3] * 10,
    }
    operator = LoadReadings()
    alone = Alone(operator, MiniBatch())
    alone.states["skipped"].begin()
    batch = pa.record_batch(rows)
    operator.check(batch.schema)
    sent = operator.process(batch, alone.states)
    assert [(row["load"], row["house"], row["household"], row["plug"]) for row in sent.to_pylist()] == [
        (20.5, 3, 2, 1),
        (0.0, 3, 2, 1),
    ]
    assert operator.results([alone.share()]).to_pylist() == [{"skipped": 7}]
    with pytest.raises(UsageError):
        LoadReadings(on_bad="stop").process(batch, alone.states)


@pytest.mark.parametrize("name", ["timestamp", "value", "property", "plug_id", "household_id", "house_id"])
def test_columns_that_the_conversion_needs(name: str) -> None:
    names = ["timestamp", "value", "property", "plug_id", "household_id", "house_id"]
    for kind in (None, pa.list_(pa.int64())):
        kinds = {one: pa.float64() for one in names} | {name: kind}
        with pytest.raises(UsageError) as caught:
            LoadReadings().check(pa.schema({one: kind for one, kind in kinds.items() if kind is not None}))
        assert caught.value.column == name


@pytest.mark.parametrize(
    "wrong",
    [
        {"minutes": ()},
        {"minutes": (7,)},
        {"minutes": (0,)},
        {"days": 0},
        {"largest": 0.0},
        {"unit": 100.0},
        {"unit": 0.0},
    ],
)
def test_predictions_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        LoadPrediction(**wrong)


def test_readings_that_were_not_converted() -> None:
    with pytest.raises(UsageError):
        LoadPrediction().check(pa.schema({"time": pa.int64(), "load": pa.float64()}))
    for row in (Reading(0.0, 0, 0, 0, -1.0), Reading(math.nan, 0, 0, 0, 1.0), Reading(0.0, 0, 0, 0, 5000.0)):
        with pytest.raises(UsageError):
            LoadPrediction().summed(items([row]))


def test_fingerprints_tell_settings_apart() -> None:
    kinds = [LoadPrediction(), LoadPrediction(minutes=(60,)), LoadPrediction(days=3), LoadPrediction(sends=True)]
    assert len({str(operator.fingerprint()) for operator in kinds}) == 4
