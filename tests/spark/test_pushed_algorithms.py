"""The algorithms over pushed items: without failures, what comes out is what one process makes of the same items."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.pushing import kind_of
from afspark.push.producer.producer import Producer
from afspark.sources.generated_visits import VISITS
from tests.spark.streams import Place

TICK = 0.3


def stream(spark: SparkSession, schema: pa.Schema) -> af.Stream:
    return af.read_stream(spark).pushed(schema, tick_seconds=TICK)


def started(writer: af.StreamWriter, place: Place) -> af.Query:
    return (
        writer.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .option("hostGraceSeconds", 5)
        .start()
    )


def pushed(query: af.Query, *streams: Sequence[pa.RecordBatch]) -> None:
    """Everything is pushed, each stream to a receiver of its own, and processed."""
    producers = [
        Producer(address, f"p{number}", batches[0].schema)
        for number, (address, batches) in enumerate(zip(query.receivers, streams, strict=True))
    ]
    for producer, batches in zip(producers, streams, strict=True):
        for batch in batches:
            producer.send(batch)
    for producer in producers:
        producer.close(60)
    until(query, lambda: not any(lane["pending_entries"] for lane in lanes(query)))
    query.stop()
    assert query.item_losses() == []


def lanes(query: af.Query) -> list[dict[str, Any]]:
    return [lane for stats in query.receiverStats().values() for lane in stats["lanes"].values()]


def until(query: af.Query, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        query.raise_failure()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def made(kind: str, count: int, rows: int) -> list[pa.RecordBatch]:
    return list(kind_of(kind).make(count, rows))


POLICIES = [
    af.Approximate(100, items=1_000, unacked=100_000),
    af.UpstreamBackup(log_items=True),
]


@pytest.mark.parametrize("tolerance", POLICIES, ids=["approximate", "logged"])
def test_words_and_lines(spark: SparkSession, place: Place, tolerance: af.Tolerance) -> None:
    batches = made("lines", 4, 2_000)
    lines = [line for batch in batches for line in batch.column(0).to_pylist()]
    query = started(
        stream(spark, kind_of("lines").schema).apply(af.WordCount(longest=200), tolerance=tolerance).writeStream, place
    )
    pushed(query, batches)
    found = {row["word"]: row["count"] for row in query.results().collect()}
    assert found == Counter(word for line in lines for word in line.split())


def test_grep_sends_every_line_once(spark: SparkSession, place: Place) -> None:
    batches = made("lines", 4, 2_000)
    lines = [line for batch in batches for line in batch.column(0).to_pylist()]
    got: list[str] = []
    grep = stream(spark, kind_of("lines").schema).apply(af.Grep("ab"), tolerance=af.Approximate(0, items=1_000))
    writer = grep.writeStream.outputMode("append")
    query = started(writer.foreachBatch(lambda rows, _: got.extend(row["value"] for row in rows.collect())), place)
    pushed(query, batches)
    assert Counter(got) == Counter(line for line in lines if "ab" in line)


def test_heavy_hitters(spark: SparkSession, place: Place) -> None:
    batches = made("packets", 4, 10_000)
    operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=200_000)
    tolerance = af.Approximate(10_000, items_seconds=2.0, unacked=100_000)
    query = started(stream(spark, kind_of("packets").schema).apply(operator, tolerance=tolerance).writeStream, place)
    pushed(query, batches)
    packets = pa.Table.from_batches(batches).group_by(["src", "dst"]).aggregate([("bytes", "sum")]).to_pylist()
    heavy = {(row["src"], row["dst"]): row["bytes_sum"] for row in packets if row["bytes_sum"] >= 200_000}
    found = {(row["src"], row["dst"]): row["estimate"] for row in query.results().collect()}
    assert heavy and heavy.keys() <= found.keys()
    assert all(found[key] >= total for key, total in heavy.items())
    assert all(row["bound"] == 0 for row in query.results().collect())


def pairs(batches: Sequence[pa.RecordBatch]) -> int:
    """How many pairs of a left and a right packet agree in host and second."""
    counts: list[Counter[tuple[int, int]]] = [Counter(), Counter()]
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("dst", "second", "side")]
        for dst, second, side in zip(*columns, strict=True):
            counts[side][dst, second] += 1
    return sum(count * counts[1][key] for key, count in counts[0].items())


@pytest.mark.parametrize("tolerance", POLICIES, ids=["approximate", "logged"])
def test_join_of_one_stream_with_both_sides(spark: SparkSession, place: Place, tolerance: af.Tolerance) -> None:
    batches = made("visits", 4, 10_000)
    join = af.OnlineJoin(on=("dst", "second"), rate=1.0)
    query = started(stream(spark, kind_of("visits").schema).apply(join, tolerance=tolerance).writeStream, place)
    pushed(query, batches)
    (row,) = query.results().collect()
    assert row["pairs"] == row["estimate"] == pairs(batches) > 0
    assert row["samples"] == 40_000


def test_join_of_two_pushed_streams(spark: SparkSession, place: Place) -> None:
    """Each has a receiver and a relay of its own."""
    batches = made("visits", 4, 10_000)
    sides = [[batch.filter(pc.equal(batch.column("side"), side)) for batch in batches] for side in (0, 1)]
    join = af.OnlineJoin(on=("dst", "second"), rate=1.0)
    left, right = (stream(spark, VISITS).map(mark) for mark in (join.left, join.right))
    joined = left.union(right).apply(join, name="join", tolerance=af.Approximate(100, items_seconds=2.0))
    query = started(joined.writeStream, place)
    pushed(query, *([batch.select(VISITS.names).cast(VISITS) for batch in side] for side in sides))
    (row,) = query.results("join").collect()
    assert row["pairs"] == row["estimate"] == pairs(batches) > 0


@pytest.mark.parametrize("tolerance", [af.Approximate(1, items=1_000), af.MiniBatch(log_items=True)], ids=str)
def test_regression_learns_from_every_click_once(spark: SparkSession, place: Place, tolerance: af.Tolerance) -> None:
    """How items fall into batches decides when models are merged, so the model is one of many; the counts are exact."""
    batches = made("clicks", 8, 8_192)
    features = af.Features(slots=20_000)
    merged = af.logistic_regression(
        stream(spark, kind_of("clicks").schema), features=features, workers=2, tolerance=tolerance
    )
    curve: list[Any] = []
    writer = merged.writeStream.outputMode("append")
    query = started(writer.foreachBatch(lambda rows, _: curve.extend(rows.collect())), place)
    pushed(query, batches)
    (told,) = query.results("local").collect()
    labels = np.concatenate([batch.column("label").to_numpy() for batch in batches])
    assert (told["items"], told["skipped"]) == (8 * 8_192, 0)
    assert sum(row["items"] for row in curve) == 8 * 8_192
    assert told["base_rate"] == pytest.approx(max(labels.mean(), 1 - labels.mean()))
    assert told["prediction_rate"] > told["base_rate"] + 0.03
    assert query.results("global").count() > 1_000


def test_regression_of_one_worker_is_that_of_one_process(spark: SparkSession, place: Place) -> None:
    """One local worker, one merge a batch of its own model: the merged model is the one it would have had alone."""
    batches = made("clicks", 4, 4_096)
    features = af.Features(slots=20_000)
    schema = kind_of("clicks").schema
    merged = af.logistic_regression(stream(spark, schema), features=features, workers=1, tolerance=af.MiniBatch())
    query = started(merged.writeStream, place)
    pushed(query, batches)
    fitted = features.fitted(schema)
    model, items = np.zeros(fitted.cells), 0
    from afspark.algorithms.features import ItemLearner

    for batch in batches:
        learner = ItemLearner(fitted, model, 1.0)
        learner.learn(batch, fitted.labels(batch), items)
        cells, values = learner.changes()
        model[cells] = values
        items += batch.num_rows
    rows = query.results("global").toArrow()
    found = np.zeros(fitted.cells)
    found[rows.column("index").to_numpy()] = rows.column("weight").to_numpy()
    assert found == pytest.approx(model, abs=1e-9)
