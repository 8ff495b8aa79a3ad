"""Items pushed to a query on Spark: taken once, by any kind of operator, with drivers and workers killed on the way."""

from __future__ import annotations

import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.push.producer.producer import Producer
from tests.spark.own_driver import own_driver
from tests.spark.streams import Place

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

SCHEMA = pa.schema([("key", pa.int64()), ("time", pa.float64())])


class Count(af.Operator):
    """Counts items by key."""

    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)


def batch(start: int, rows: int = 1_000) -> pa.RecordBatch:
    numbers = np.arange(start, start + rows)
    return pa.record_batch({"key": numbers % 97, "time": numbers / 100.0}, schema=SCHEMA)


def totals(query: af.Query, operator: str | None = None) -> dict[int, int]:
    return {row[0]: row[1] for row in query.results(operator).collect()}


def expected(rows: int) -> dict[int, int]:
    return dict(enumerate(np.bincount(np.arange(rows) % 97).tolist()))


def wait_until(query: af.Query, items: int, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while query.totals.items < items:
        query.raise_failure()
        assert time.monotonic() < deadline, query.totals
        time.sleep(0.05)


def writer(
    spark: SparkSession, place: Place, tolerance: af.Tolerance, *, keyed: bool = False, port: int = 0, **node: Any
) -> af.StreamWriter:
    stream = af.read_stream(spark).pushed(SCHEMA, tick_seconds=0.3, port=port)
    counted = stream.apply(Count(), name="count", tolerance=tolerance, keyed=keyed, **{"workers": 2, **node})
    return (
        counted.writeStream.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .option("hostGraceSeconds", 5)
    )


def test_pushed_items_are_counted_once_over_two_runs(spark: SparkSession, place: Place) -> None:
    """Through a relay to an operator by key; what waits when the query stops is there for the next run."""
    started = writer(spark, place, af.Approximate(0, items=100, unacked=10_000), keyed=True)
    query = started.start()
    with Producer(query.receivers[0], "sensor", SCHEMA) as producer:
        for start in range(0, 20_000, 1_000):
            producer.send(batch(start))
        producer.flush(60)
        wait_until(query, 1)
        for start in range(20_000, 30_000, 1_000):
            producer.send(batch(start))
        producer.flush(60)
    query.stop()
    again = started.start()
    wait_until(again, 30_000 - query.totals.items)
    again.stop()
    assert totals(again, "count") == expected(30_000)
    assert again.item_losses() == []
    assert again.bounds("count") == {"counts": 0.0}


def test_heavy_hitters_are_found_although_items_were_lost(spark: SparkSession, place: Place) -> None:
    """System failures take receivers and states; what the lost items can have weighed is added to every estimate."""
    largest, tolerance = 10.0, af.Approximate(100, items=4_000, unacked=4_000)
    operator = af.HeavyHitters(keys=("key",), weight="time", threshold=1_000, value="float64", largest=largest)
    stream = af.read_stream(spark).pushed(SCHEMA, tick_seconds=0.2)
    faults = FaultPlan(frozenset(InjectedFailure(batch, FaultPhase.BETWEEN) for batch in (1, 2, 3, 4)), name="items")
    query = (
        stream.apply(operator, name="heavy", workers=2, tolerance=tolerance)
        .writeStream.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .inject(faults)
        .start()
    )
    draw = np.random.default_rng(1)
    truth: Counter[int] = Counter()
    deadline = time.monotonic() + 120
    with Producer(query.receivers[0], "sensor", SCHEMA, give_up=60) as producer:
        while query.totals.batches < 6:
            assert time.monotonic() < deadline, query.totals
            keys, weights = draw.integers(0, 40, 400) ** 2 // 40, draw.uniform(0, largest, 400)
            for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
                truth[key] += weight
            producer.send(pa.record_batch({"key": keys, "time": weights}, schema=SCHEMA))
            time.sleep(0.01)
        producer.flush(60)
        sent = producer.counters.taken
    while any(one["pending_items"] for one in query.receiverStats().values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    query.stop()
    lost = sum(loss["items"] for loss in query.item_losses())
    assert query.totals.items + lost == sent
    assert lost <= tolerance.items
    found = {row["key"]: row for row in query.results().collect()}
    assert {key for key, weight in truth.items() if weight >= 1_000} <= found.keys()
    assert all(row["estimate"] >= truth[key] - 1e-6 for key, row in found.items())
    bound = query.bounds()["sketch"]
    assert largest * lost <= bound <= tolerance.promise(largest)
    assert all(row["bound"] == bound for row in found.values())


def test_a_query_may_wait_for_its_first_producer(spark: SparkSession, place: Place) -> None:
    """Spark runs its first batch whether anything has come or not."""
    query = writer(spark, place, af.MiniBatch()).start()
    deadline = time.monotonic() + 60
    while query.lastProgress is None:
        query.raise_failure()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert query.totals.items == 0
    with Producer(query.receivers[0], "sensor", SCHEMA) as producer:
        producer.send(batch(0))
        producer.flush(60)
        wait_until(query, 1_000)
    query.stop()
    assert totals(query) == expected(1_000)


def test_windows_of_pushed_items_close_by_punctuation(spark: SparkSession, place: Place) -> None:
    closed: Counter[float] = Counter()
    started = writer(spark, place, af.MiniBatch(), window=af.Hopping(100.0, column="time"))
    started = started.outputMode("append").foreachBatch(
        lambda frame, batch: [closed.update({row["window_start"]: row["value"]}) for row in frame.collect()] and None
    )
    query = started.start()
    with Producer(query.receivers[0], "sensor", SCHEMA) as producer:
        for start in range(0, 15_000, 1_000):
            producer.send(batch(start))
        producer.punctuate(time=200.0)
        producer.flush(60)
        wait_until(query, 15_000)
        deadline = time.monotonic() + 60
        while len(closed) < 2:
            assert time.monotonic() < deadline, closed
            producer.send(batch(19_900, 100))
            time.sleep(0.3)
    query.stop()
    assert closed == {0.0: 10_000, 100.0: 5_000}


DRIVER = """
import sys
import afspark as af
from tests.spark.conftest import make_session
from tests.spark.streams import Place
from tests.spark.test_push import writer
from pathlib import Path

place = Place(Path(sys.argv[1]))
spark = make_session(place.root / "spark")
query = writer(spark, place, af.Approximate(0, items=4_000, unacked=4_000)).start()
(place.root / "address.tmp").write_text(query.receivers[0])
(place.root / "address.tmp").rename(place.root / "address")
query.awaitTermination()
"""


def test_a_killed_driver_loses_no_more_than_its_receiver_was_allowed(spark: SparkSession, place: Place) -> None:
    address = place.root / "address"
    with own_driver(DRIVER, place) as driver:
        driver.wait_for(address)
        producer = Producer(address.read_text(), "sensor", SCHEMA, give_up=120)
        for start in range(0, 40_000, 1_000):
            producer.send(batch(start))
            time.sleep(0.1 if list((place.checkpoint / "commits").glob("*")) else 0.3)
            if start == 30_000:
                driver.kill()
                port = int(address.read_text().rpartition(":")[2])
                started = writer(spark, place, af.Approximate(0, items=4_000, unacked=4_000), port=port)
                query = started.start()
        producer.close()
    waiting = True
    deadline = time.monotonic() + 60
    while waiting:
        assert time.monotonic() < deadline
        time.sleep(0.5)
        (stats,) = query.receiverStats().values()
        waiting = any(lane["pending_entries"] for lane in stats["lanes"].values())
    query.stop()
    lost = 40_000 - sum(totals(query).values())
    assert 0 <= lost <= 4_000
    assert lost == sum(loss["items"] for loss in query.item_losses())
    assert all(count <= expected(40_000)[key] for key, count in totals(query).items())


def test_a_plain_spark_source(spark: SparkSession, place: Place) -> None:
    af.register(spark)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    frame = (
        spark.readStream.format("afspark")
        .schema("key long, time double")
        .option("port", port)
        .option("items", 500)
        .option("logLocation", str(place.root / "log"))
        .load()
    )
    got: list[int] = []
    plain = frame.writeStream.foreachBatch(lambda rows, _: got.extend(row["key"] for row in rows.collect()))
    query = plain.option("checkpointLocation", str(place.checkpoint)).start()
    try:
        with Producer(f"127.0.0.1:{port}", "sensor", SCHEMA) as producer:
            for start in range(0, 5_000, 1_000):
                producer.send(batch(start))
            producer.flush(60)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(got) == sorted((np.arange(5_000) % 97).tolist())
