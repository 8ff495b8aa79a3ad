"""Grep and the online join as queries on a local Spark, one query each."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPhase
from afspark.sources import Visits
from tests.spark.streams import Place, affected, at, run, write_text


@pytest.mark.thorough
def test_grep_sends_every_matching_line_once_through_failures(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 8)
    lines = [line for file in sorted(place.input.iterdir()) for line in file.read_text().splitlines()]
    found: dict[int, list[str]] = {}

    def keep(frame: DataFrame, batch: int) -> None:
        found[batch] = [row["value"] for row in frame.collect()]

    stream = af.read_stream(spark).text(str(place.input), blocks=True)
    sent = stream.apply(af.Grep("w17"), workers=2, tolerance=af.Approximate(theta=0))
    writer = at(sent.writeStream, place).outputMode("append").foreachBatch(keep)
    query = run(writer.inject(affected(FaultPhase.BETWEEN, 1)))
    assert Counter(line for batch in found.values() for line in batch) == Counter(li for li in lines if "w17" in li)
    assert len(query.ledger()) == 2


@pytest.mark.thorough
def test_a_join_stays_inside_its_bound_through_failures(spark: SparkSession, place: Place) -> None:
    streams = [Visits(30_000, stream=side, hosts=500, per_second=2_000) for side in (0, 1)]
    join = af.OnlineJoin(on=("dst", "second"), rate=0.2, value="bytes")
    left, right = (af.read_stream(spark).source(source) for source in streams)
    both = left.map(join.left).union(right.map(join.right))
    sampled = both.apply(join, workers=2, tolerance=af.Approximate(theta=1_000))
    query = run(at(sampled.writeStream, place, 200_000).inject(affected(FaultPhase.BETWEEN, 1, 2)))
    rows = {row["aggregate"]: row for row in query.results().collect()}
    tables = [
        pa.Table.from_batches(
            [batch for chunk in planner.chunks(planner.initial(), planner.discover()) for batch in source.read(chunk)]
        ).to_pandas()
        for source in streams
        for planner in [source.planner(None)]  # type: ignore[arg-type]
    ]
    truth = tables[0].merge(tables[1], on=["dst", "second"])
    assert query.totals.items == 60_000
    assert 0 < rows["count"]["lost"] <= 2_000
    assert 0 <= 12_000 - rows["count"]["samples"] + 600 <= rows["count"]["lost"] + 1_200
    assert rows["count"]["low"] <= len(truth) <= rows["count"]["high"]
    assert rows["sum"]["low"] <= truth["bytes_x"].sum() <= rows["sum"]["high"]
    assert abs(rows["average"]["estimate"] / truth["bytes_x"].mean() - 1) < 0.1
