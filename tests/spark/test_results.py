"""Results of every source, path, policy and output mode equal an exact recount when nothing fails."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.sources import ZipfWords
from tests.spark.streams import BATCH_BYTES, Place, at, counts, run, words, write_text


@pytest.mark.parametrize(
    ("tolerance", "keyed"),
    [(af.Nothing(), False), (af.MiniBatch(), True), (af.Approximate(200.0), False)],
    ids=["none", "minibatch", "approximate"],
)
def test_text_files(spark: SparkSession, place: Place, tolerance: af.Tolerance, keyed: bool) -> None:
    truth = write_text(place.input, 8)
    query = run(words(spark, place, tolerance, keyed=keyed))
    assert counts(query) == truth
    assert query.totals.batches == 2 and query.totals.items == truth.total()
    assert query.totals.bytes == 8 * BATCH_BYTES // 4
    assert query.ledger() == [] and query.bounds() == {"counts": 0.0}
    assert bool(place.objects()) == tolerance.needs_records


def test_lines_of_text_with_a_transform_in_front(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 4)
    truth = Counter(
        word.upper()
        for file in place.input.iterdir()
        for line in file.read_text().splitlines()
        if line.startswith("w1 ")
        for word in line.split()
    )

    def loud(batch: Any) -> Any:
        kept = batch.filter(pc.starts_with(batch.column("value"), "w1 "))
        return pa.record_batch({"value": pc.utf8_upper(kept.column("value"))}) if kept.num_rows else None

    stream = af.read_stream(spark).text(str(place.input)).map(loud).apply(af.WordCount(), tolerance=af.MiniBatch())
    assert counts(run(at(stream.writeStream, place))) == truth


def test_generated_words(spark: SparkSession, place: Place) -> None:
    source = ZipfWords(1 << 20, seed=5, vocabulary=2_000)
    planner = source.planner(None)  # type: ignore[arg-type]
    text = b"".join(
        block
        for chunk in planner.chunks(planner.initial(), planner.discover())
        for batch in source.read(chunk)
        for block in batch.column(0).to_pylist()
    )
    stream = af.read_stream(spark).source(source).apply(af.WordCount(), tolerance=af.MiniBatch())
    assert counts(run(at(stream.writeStream, place, 1 << 19))) == Counter(text.decode().split())


def test_parquet_files(spark: SparkSession, place: Place) -> None:
    place.input.mkdir()
    totals: Counter[str] = Counter()
    for number in range(4):
        users = [f"u{i % 7}" for i in range(40)]
        table = pa.table({"id": list(range(40)), "user": users, "size": list(range(40))})
        pq.write_table(table, place.input / f"{number}.parquet")
        for size, user in enumerate(users):
            totals[user] += size
    operator = af.HeavyHitters(keys=("user",), weight="size", threshold=450)
    stream = af.read_stream(spark).parquet(str(place.input), columns=("user", "size")).apply(operator)
    rows = {row.user: row.estimate for row in run(at(stream.writeStream, place, 1)).results().collect()}
    assert rows == {user: size for user, size in totals.items() if size >= 450}


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_a_streaming_dataframe_of_text(spark: SparkSession, place: Place, keyed: bool) -> None:
    truth = write_text(place.input, 6)
    frame = spark.readStream.option("maxFilesPerTrigger", 2).text(str(place.input))
    stream = af.read_stream(spark).frame(frame).apply(af.WordCount(), tolerance=af.Approximate(200.0), keyed=keyed)
    query = run(at(stream.writeStream, place))
    assert counts(query) == truth
    assert query.totals.batches == 3 and query.totals.items == truth.total()


def test_a_streaming_dataframe_of_parquet(spark: SparkSession, place: Place) -> None:
    place.input.mkdir()
    for number in range(2):
        pq.write_table(pa.table({"user": ["a", "b", "a"], "size": [1, 2, 3]}), place.input / f"{number}.parquet")
    frame = spark.readStream.schema("user string, size long").parquet(str(place.input))
    operator = af.HeavyHitters(keys=("user",), weight="size", threshold=1)
    query = run(at(af.read_stream(spark).frame(frame).apply(operator).writeStream, place))
    assert {row.user: row.estimate for row in query.results().collect()} == {"a": 8, "b": 4}


def test_sparks_rate_source(spark: SparkSession, place: Place) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 200).load().selectExpr("string(value) as value")
    stream = af.read_stream(spark).frame(frame).apply(af.WordCount(), tolerance=af.MiniBatch())
    query = at(stream.writeStream, place).trigger(processingTime="0 seconds").start()
    while query.totals.items < 200:
        assert not query.awaitTermination(1) and query.exception() is None
    query.stop()
    got = counts(query)
    assert set(got.values()) == {1}
    assert {int(value) for value in got} == set(range(len(got)))


def test_new_files_are_picked_up_while_running(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 2)
    query = words(spark, place, af.MiniBatch()).trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    assert counts(query) == truth
    truth += write_text(place.input, 2, first=2)
    query.processAllAvailable()
    assert counts(query) == truth
    query.stop()
    assert not query.isActive and query.exception() is None
    assert counts(query) == truth


def test_update_mode_gives_exactly_the_changed_rows_with_their_totals(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 12)
    files = sorted(place.input.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    batches: dict[int, dict[str, int]] = {}

    def deliver(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        batches[batch] = {row.word: row["count"] for row in rows}
        assert len(batches[batch]) == len(rows)

    run(words(spark, place, af.MiniBatch()).outputMode("update").foreachBatch(deliver))
    totals: Counter[str] = Counter()
    for batch in range(3):
        read = Counter(word for file in files[4 * batch : 4 * batch + 4] for word in file.read_text().split())
        totals += read
        assert batches[batch] == {word: totals[word] for word in read}
    assert sorted(batches) == [0, 1, 2]


def test_complete_mode_gives_everything_after_each_batch(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    seen: list[dict[str, int]] = []
    writer = words(spark, place, af.MiniBatch()).outputMode("complete")
    run(writer.foreachBatch(lambda frame, batch: seen.append({row.word: row["count"] for row in frame.collect()})))
    assert len(seen) == 2 and seen[-1] == truth
    assert 0 < sum(seen[0].values()) < truth.total()


def test_a_spark_sink(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    out = place.root / "out"
    writer = words(spark, place, af.MiniBatch()).outputMode("update").format("parquet")
    query = writer.option("compression", "none").start(str(out))
    query.awaitTermination()
    rows = spark.read.parquet(str(out)).groupBy("word").max("count").collect()
    assert {row[0]: row[1] for row in rows} == truth


def test_progress_says_what_happened(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 4)
    query = run(words(spark, place, af.MiniBatch()).queryName("named"))
    progress = query.lastProgress
    assert progress is not None
    assert (progress["batch"], progress["items"], progress["tries"]) == (0, truth.total(), 1)
    assert progress["backups"]["count"] == 2
    assert [worker["theta"] for worker in progress["workers"]] == [{"counts": 0.0}] * 2
    assert query.name == "named"


def test_released_state_comes_back_from_backups(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 4)
    query = run(words(spark, place, af.MiniBatch()))
    query.release()
    assert not list(place.segments.glob("*/*/*"))
    truth += write_text(place.input, 4, first=4)
    query = run(words(spark, place, af.MiniBatch()))
    assert counts(query) == truth
    assert {entry["worker"] for entry in query.ledger()} == {0, 1}
