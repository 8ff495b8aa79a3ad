"""The two applications as whole pipelines, with failures, and without a JVM."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.cli.planning import MemoryLog
from afspark.sources import Posts, SmartPlugs, Source
from afspark.sources.generated_posts import SUBJECTS
from tests.twins import loads_twin, sentiment_twin
from tests.twins.loads_twin import Reading

POSTS, PLUGS = Posts(4_000, seed=5, seconds=40), SmartPlugs(8_000, seed=5, houses=3, days=4)
KEYWORDS = SUBJECTS[:4]
THETA = 20
BATCHES = 7

Rows = dict[tuple[Any, ...], dict[str, Any]]


def moods(tolerance: af.Tolerance) -> Callable[[af.Stream], Any]:
    def pipeline(posts: af.Stream) -> Any:
        made = af.keyword_sentiment(posts, KEYWORDS, tolerance=tolerance)
        return made.writeStream.outputMode("append")

    return pipeline


def loads(tolerance: af.Tolerance) -> Callable[[af.Stream], Any]:
    def pipeline(readings: af.Stream) -> Any:
        made = af.load_prediction(readings, minutes=(30, 120), days=2, tolerance=tolerance)
        return made.writeStream.outputMode("append")

    return pipeline


def batches(source: Source) -> Iterator[pa.RecordBatch]:
    """All rows, in parts of equal size."""
    planner = source.planner(MemoryLog())
    chunks = planner.chunks(planner.initial(), planner.discover())
    whole = pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)])
    size = -(-len(whole) // BATCHES)
    for start in range(0, len(whole), size):
        yield pa.concat_batches(whole.slice(start, size).to_batches())


def disturb(query: Any, number: int, operators: tuple[str, str]) -> None:
    """Hosts, processes with and without their state, and the driver fail, one after the other."""
    if number == 2:
        query.lose_host()
    elif number == 3:
        query.kill_worker(operators[0], 0)
        query.kill_worker(operators[1], 1, "backing up", lose_state=True)
    elif number == 5:
        query.restart_driver()
        query.lose_host()


def run(
    pipeline: Any, source: Source, operators: tuple[str, str], sent: str, *, failing: bool
) -> tuple[pa.Table, pa.Table]:
    """What the sink gets of the whole stream (with the end) as ``sent``, and the results just before it."""
    given = []
    with testing.run(pipeline, source.schema()) as query:
        for number, batch in enumerate(batches(source)):
            query.batch(batch)
            given.append(getattr(query, sent)())
            if failing:
                disturb(query, number, operators)
        results = query.results()
        assert bool(query.ledger()) == failing
        query.end()
        given.append(getattr(query, sent)())
    return pa.concat_tables(table for table in given if table is not None), results


def by(table: pa.Table, *names: str) -> Rows:
    rows = table.to_pylist()
    found = {tuple(row[name] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def windows(tolerance: af.Tolerance, *, failing: bool = True) -> Rows:
    closed, _ = run(moods(tolerance), POSTS, ("filter", "sentiment"), "windows", failing=failing)
    return by(closed, "window_end", "keyword")


def predictions(tolerance: af.Tolerance, *, failing: bool = True) -> Rows:
    sent, newest = run(loads(tolerance), PLUGS, ("conversion", "prediction"), "items", failing=failing)
    return by(pa.concat_tables([sent, newest]), "minutes", "house", "household", "plug", "start")


@pytest.fixture(scope="module")
def exact_windows() -> Rows:
    found = windows(af.MiniBatch(), failing=False)
    assert len({end for end, _ in found}) == 49 and max(row["texts"] for row in found.values()) > 200
    return found


@pytest.fixture(scope="module")
def exact_predictions() -> Rows:
    found = predictions(af.MiniBatch(), failing=False)
    assert len(found) > 2_000 and any(row["days"] == 2 for row in found.values())
    return found


def test_predictions_are_those_of_the_twin(exact_predictions: Rows) -> None:
    rows = [row for batch in batches(PLUGS) for row in batch.to_pylist() if row["property"] == 1]
    readings = [
        Reading(
            row["timestamp"], row["house_id"], row["household_id"], row["plug_id"], round(row["value"] * 1024) / 1024
        )
        for row in rows
    ]
    expected = loads_twin.forecasts(readings, (30, 120), 2)
    assert exact_predictions.keys() == expected.keys()
    for key, one in expected.items():
        row = exact_predictions[key]
        assert (row["days"], row["prediction"]) == (one.days, pytest.approx(one.prediction))


def test_windows_are_those_of_the_twin(exact_windows: Rows) -> None:
    expected: Counter[tuple[float, str]] = Counter()
    for row in (row for batch in batches(POSTS) for row in batch.to_pylist()):
        for place in sentiment_twin.matches(row["text"], KEYWORDS):
            expected.update((math.floor(row["time"]) + 1.0 + later, KEYWORDS[place]) for later in range(10))
    assert {key: row["texts"] for key, row in exact_windows.items()} == expected


EXACT = pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(interval=3)], ids=lambda one: one.name)


@EXACT
def test_windows_are_exact_under_an_exact_policy(tolerance: af.Tolerance, exact_windows: Rows) -> None:
    assert windows(tolerance) == exact_windows


@EXACT
def test_predictions_are_exact_under_an_exact_policy(tolerance: af.Tolerance, exact_predictions: Rows) -> None:
    assert predictions(tolerance) == exact_predictions


def test_windows_stay_inside_their_bound(exact_windows: Rows) -> None:
    # Each of ten panes has a tenth of it, and before a failure half of that.
    theta = 10 * THETA
    found = windows(af.Approximate(theta=theta))
    assert found.keys() <= exact_windows.keys()
    for name in ("texts", "score"):
        missing = {"texts": 0, "score": 0.0}
        errors = [abs(row[name] - found.get(key, missing)[name]) for key, row in exact_windows.items()]
        assert 0 < max(errors) <= theta


def test_exact_predictions_are_inside_what_is_told(exact_predictions: Rows) -> None:
    found = predictions(af.Approximate(theta=THETA))
    assert found.keys() <= exact_predictions.keys()
    slack = 1e-9
    for key, row in found.items():
        assert row["low"] - slack <= exact_predictions[key]["prediction"] <= row["high"] + slack
    moved = [row for key, row in found.items() if abs(row["prediction"] - exact_predictions[key]["prediction"]) > slack]
    open_ = [row for row in found.values() if row["high"] > row["low"]]
    assert moved and len(open_) >= len(moved)


def test_bounds_are_told_per_state() -> None:
    with testing.run(loads(af.Approximate(theta=THETA)), PLUGS.schema()) as query:
        for batch in batches(PLUGS):
            query.batch(batch)
            query.lose_host()
        query.results()
        bounds = query.bounds("prediction")
        assert bounds["plugs"] == bounds["newest"] == 0
        assert 0 < bounds["readings"] <= THETA and 0 < bounds["load"] <= THETA
        assert query.upstream_losses("prediction") == []
