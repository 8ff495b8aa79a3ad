"""What a user of Structured Streaming expects of a query, its progress, its listeners and its sinks."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

import afspark as af
from afspark.errors import UsageError
from tests.spark.streams import Place, at, run, words, write_text


class Hears(StreamingQueryListener):
    """Keeps the progress of all queries by their id."""

    def __init__(self) -> None:
        self.progress: dict[str, list[Any]] = {}
        self.ended: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:
        self.progress.setdefault(str(event.id), [])

    def onQueryProgress(self, event: Any) -> None:
        self.progress.setdefault(str(event.progress.id), []).append(event.progress)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.add(str(event.id))


@contextmanager
def listening(spark: SparkSession) -> Iterator[Hears]:
    listener = Hears()
    spark.streams.addListener(listener)
    try:
        yield listener
    finally:
        spark.streams.removeListener(listener)


def flush_events(spark: SparkSession) -> None:
    """Listeners hear of queries on a thread of their own."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[union-attr]


def test_progress_and_listeners_have_sparks_keys_and_true_numbers(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    with listening(spark) as heard:
        query = run(words(spark, place, af.MiniBatch()))
        flush_events(spark)
    progress = query.recentProgress
    assert len(progress) == 2 and [one["batchId"] for one in progress] == [0, 1]
    assert set(query.spark_query.lastProgress) <= set(progress[-1]), "what Spark tells of a query is told"
    assert sum(one["numInputRows"] for one in progress) == truth.total()
    told = heard.progress[query.id]
    assert [one.numInputRows for one in told] == [one["numInputRows"] for one in progress]
    assert [one.batchId for one in told] == [0, 1] and query.id in heard.ended
    (operator,) = progress[-1]["stateOperators"]
    # Workers have shares of the same words.
    assert len(truth) <= operator["numRowsTotal"] <= 2 * len(truth)
    assert operator["memoryUsedBytes"] == progress[-1]["state"]["bytes"] > 0
    assert operator["customMetrics"]["backupBytes"] == progress[-1]["backups"]["bytes"] > 0
    assert progress[-1]["durationMs"]["triggerExecution"] > 0
    assert str(place.input) in progress[-1]["sources"][0]["description"]


def test_a_query_is_known_to_spark_by_its_id(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 4)
    writer = words(spark, place, af.MiniBatch()).queryName("known")
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        assert str(uuid.UUID(query.id)) == query.id and str(uuid.UUID(query.runId)) == query.runId
        found = spark.streams.get(query.id)
        assert found is not None and (str(found.runId), found.name) == (query.runId, "known")
        query.processAllAvailable()
    finally:
        query.stop()
    again = run(writer.trigger(availableNow=True))
    assert again.id == query.id and again.runId != query.runId


def test_the_memory_sink_is_a_table(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    run(words(spark, place, af.MiniBatch()).outputMode("update").format("memory").queryName("memorised"))
    found = Counter({row["word"]: row["most"] for row in spark.sql(MOST).collect()})
    assert found == truth


MOST = "SELECT CAST(word AS STRING) AS word, MAX(count) AS most FROM memorised GROUP BY word"


def test_the_console_sink_shows_batches(spark: SparkSession, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    write_text(place.input, 4)
    run(words(spark, place, af.MiniBatch()).format("console").options(NumRows=2, truncate=False))
    shown = capsys.readouterr().out
    assert "Batch: 0" in shown and "|word" in shown and "only showing top 2 rows" in shown


def numbers(spark: SparkSession, place: Place) -> af.StatefulStream:
    """Sent as they come: packets with their size rounded, so that there are few sizes."""

    class Sizes(af.Operator):
        def process(self, items: Any, states: Any) -> Any:
            import pyarrow as pa
            import pyarrow.compute as pc

            return pa.record_batch({"src": items.column("src"), "kind": pc.divide(items.column("bytes"), 1000)})

    return af.read_stream(spark).packets(2_000).apply(Sizes(), name="sizes", workers=2)


def test_files_are_partitioned_by_columns(spark: SparkSession, place: Place) -> None:
    writer = at(numbers(spark, place).writeStream, place).outputMode("append").format("parquet").partitionBy("kind")
    query = writer.start(str(place.root / "out"))
    query.awaitTermination()
    folders = {path.name for path in (place.root / "out").glob("kind=*")}
    written = spark.read.parquet(str(place.root / "out"))
    assert folders == {f"kind={row['kind']}" for row in written.select("kind").distinct().collect()}
    assert len(folders) > 1 and written.count() == 2_000


def test_a_table_is_made_and_appended_to(spark: SparkSession, place: Place) -> None:
    query = at(numbers(spark, place).writeStream, place).outputMode("append").toTable("sizes_of_packets")
    query.awaitTermination()
    try:
        assert spark.table("sizes_of_packets").count() == 2_000
    finally:
        spark.sql("DROP TABLE sizes_of_packets")


class Notes:
    """Leaves a file for each partition that it has opened, with the rows that it was given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, partition: int, batch: int) -> bool:
        self.rows: list[int] = []
        self.file = self.folder / f"{batch}-{partition}"
        return True

    def process(self, row: Row) -> None:
        self.rows.append(row["src"])

    def close(self, error: Exception | None) -> None:
        self.file.write_text(f"{len(self.rows)} {error}")


def test_foreach_opens_processes_and_closes(spark: SparkSession, place: Place) -> None:
    folder = place.root / "notes"
    folder.mkdir()
    run(at(numbers(spark, place).writeStream, place).outputMode("append").foreach(Notes(folder)))
    notes = [file.read_text().split() for file in folder.iterdir()]
    assert sum(int(rows) for rows, _ in notes) == 2_000 and {error for _, error in notes} == {"None"}


def test_options_are_those_of_spark(spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture) -> None:
    write_text(place.input, 2)
    stream = af.read_stream(spark).text(str(place.input), blocks=True).apply(af.WordCount())
    writer = stream.writeStream.trigger(availableNow=True).option("SEGMENTS", place.segments)
    run(writer.option("CheckPointlocation", place.checkpoint))
    assert (place.checkpoint / "commits" / "0").exists() and not caplog.text
    query = run(writer)
    assert str(query._engine.options.checkpoint) in caplog.text
    with pytest.raises(UsageError) as caught:
        writer.option("checkpointLocatoin", place.checkpoint).start()
    assert "'checkpointLocation'" in str(caught.value)
    with pytest.raises(UsageError) as caught:
        writer.format("parquet").start(str(place.root / "out"))
    assert caught.value.mode == "complete"


def test_a_checkpoint_folder_for_all_queries(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 2)
    common = spark.newSession()
    common.conf.set("spark.sql.streaming.checkpointLocation", str(place.root / "all"))
    stream = af.read_stream(common).text(str(place.input), blocks=True).apply(af.WordCount())
    run(stream.writeStream.trigger(availableNow=True).option("segments", place.segments).queryName("words"))
    assert (place.root / "all" / "words" / "commits" / "0").exists()
