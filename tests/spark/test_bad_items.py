"""Bad items on Spark: of producers, over a relay, and of a DataFrame."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lit, when

import afspark as af
from afspark.cli.main import main
from afspark.push.producer.producer import Producer
from tests.spark.streams import Place

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

SCHEMA = pa.schema([("key", pa.int64())])


class Count(af.Operator):
    """Counts items by key, and cannot take 13."""

    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)
        if 13 in items.column("key").to_pylist():
            raise ValueError("13")


def keys(*numbers: int | None) -> pa.RecordBatch:
    return pa.record_batch({"key": pa.array(numbers, pa.int64())}, schema=SCHEMA)


@pytest.mark.parametrize("keyed", [False, True], ids=["lanes", "relay"])
def test_one_producers_bad_items_do_not_end_the_query_for_others(
    spark: SparkSession, place: Place, keyed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = af.read_stream(spark).pushed(SCHEMA, tick_seconds=0.3)
    query = (
        stream.apply(Count(), name="count", workers=2, tolerance=af.MiniBatch(), keyed=keyed)
        .writeStream.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .start()
    )
    with (
        Producer(query.receivers[0], "good", SCHEMA) as good,
        Producer(query.receivers[0], "bad", SCHEMA) as bad,
    ):
        good.send(keys(1, 2, 3))
        bad.send(keys(None, 4, 13))
        good.send(keys(1))
        good.flush(60)
        bad.flush(60)
    deadline = time.monotonic() + 60
    while query.totals.bad < 2 or any(one["pending_items"] for one in query.receiverStats().values()):
        query.raise_failure()
        assert time.monotonic() < deadline, query.totals
        time.sleep(0.05)
    query.stop()
    assert {row[0]: row[1] for row in query.results("count").collect()} == {1: 2, 2: 1, 3: 1, 4: 1}
    found = {item["row"]["key"]: item for item in query.bad_items("count")}
    assert {key: item["kind"] for key, item in found.items()} == {None: "null key", 13: "ValueError"}
    if not keyed:
        assert {item["producer"].partition("/")[0] for item in found.values()} == {"bad"}
        assert sorted(item["number"] for item in found.values()) == [0, 2]
    report = place.root / "inspection.json"
    assert main(["inspect", str(place.checkpoint), "--bad", "--json", str(report)]) == 0
    assert len(json.loads(report.read_text())["bad_items"]) == 2
    assert "quarantine (2)" in capsys.readouterr().out


@pytest.mark.parametrize("on_bad", ["skip", "stop"])
def test_bad_rows_of_a_dataframe(spark: SparkSession, place: Place, on_bad: Any) -> None:
    """A step before the exchange raises on them."""
    spark.range(100, numPartitions=3).write.parquet(str(place.input))
    frame = spark.readStream.schema("id long").parquet(str(place.input))
    frame = frame.select(when(col("id") == 50, lit(None)).otherwise(col("id") % 7).alias("key"))
    stream = af.read_stream(spark).frame(frame).map(refuse_null)
    query = (
        stream.apply(Count(), name="count", workers=2, tolerance=af.MiniBatch(), on_bad=on_bad)
        .writeStream.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .trigger(availableNow=True)
        .start()
    )
    if on_bad == "stop":
        with pytest.raises(Exception, match="no key"):
            query.awaitTermination()
        with pytest.raises(af.errors.OperatorFailed) as raised:
            query.raise_failure()
        assert raised.value.row == "{'key': None}"
        return
    query.awaitTermination()
    counts = {row[0]: row[1] for row in query.results().collect()}
    assert sum(counts.values()) == 99 and counts[1] == 14
    (item,) = query.bad_items()
    assert (item["row"], item["kind"], item["error"]) == ({"key": None}, "null key", "ValueError: no key")


def refuse_null(items: pa.RecordBatch) -> pa.RecordBatch:
    if items.column("key").null_count:
        raise ValueError("no key")
    return items
