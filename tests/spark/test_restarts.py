"""Queries and drivers that stop at bad moments and are started again from the same checkpoint."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.errors import AnotherDriver, InputError
from tests.spark.own_driver import own_driver
from tests.spark.streams import Place, at, counts, run, words, worst, write_text

# Executors do not import tests: classes of this module travel with the tasks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class Marked(af.WordCount):
    """Meets a marker file half way through a batch: does ``act`` once if it is there."""

    def __init__(self, marker: Path, worker: int | None = None) -> None:
        super().__init__()
        self.marker, self.only = str(marker), worker

    def begin(self, states: Mapping[str, Any], context: af.WorkerContext) -> None:
        self.mine = self.only is None or context.worker == self.only

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        middle = items.num_rows // 2
        super().process(items.slice(0, middle), states)
        if self.mine and os.path.exists(self.marker):
            self.act()
        super().process(items.slice(middle), states)

    def act(self) -> None:
        raise NotImplementedError


class KillsItself(Marked):
    def act(self) -> None:
        os.unlink(self.marker)
        os.kill(os.getpid(), signal.SIGKILL)


class Waits(Marked):
    """Stays in the middle of a batch until the marker is gone."""

    def act(self) -> None:
        Path(self.marker + "-reached").touch()
        while os.path.exists(self.marker):
            time.sleep(0.05)


def wait_for(path: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.05)


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.thorough), True], ids=["shares", "keyed"])
def test_a_worker_process_killed_half_way_loses_nothing(spark: SparkSession, place: Place, keyed: bool) -> None:
    truth = write_text(place.input, 8)
    marker = place.root / "marker"
    operator = KillsItself(marker)
    started = words(spark, place, af.Approximate(100.0), operator=operator, keyed=keyed)
    run(started)
    marker.touch()
    truth += write_text(place.input, 8, first=8)
    query = run(started)
    assert not marker.exists()
    assert counts(query) == truth
    assert query.ledger() == [] and query.bounds() == {"counts": 0.0}


def test_stop_lets_the_batch_end(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 12)
    marker = place.root / "marker"
    marker.touch()
    writer = words(spark, place, af.Approximate(100.0), operator=Waits(marker))
    query = writer.start()
    wait_for(place.root / "marker-reached")
    marker.unlink()
    query.stop()
    assert query.awaitTermination(5) and query.exception() is None
    assert not query.isActive
    again = run(writer)
    assert counts(again) == truth
    assert again.ledger() == []
    # Spark may have been stopped before its own commit of the batch, which then runs again and changes nothing.
    assert query.totals.batches == 1 and again.totals.batches in (2, 3)


@pytest.mark.thorough
def test_a_plain_stop_of_sparks_query_applies_nothing_twice(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 12)
    marker = place.root / "marker"
    marker.touch()
    writer = words(spark, place, af.Approximate(100.0), operator=Waits(marker))
    query = writer.start()
    wait_for(place.root / "marker-reached")
    Timer(1.0, marker.unlink).start()
    query.spark_query.stop()
    assert not query.isActive
    again = run(writer)
    assert counts(again) == truth
    assert again.ledger() == []


DRIVER = """
import os, signal, sys
import afspark as af
from afspark.store import RecordLog
from tests.spark.streams import Place, run, words
from tests.spark.conftest import make_session
from pathlib import Path

place, moment, behind = Place(Path(sys.argv[1])), sys.argv[2], sys.argv[3]

def die():
    os.kill(os.getpid(), signal.SIGKILL)

real = RecordLog.write
def write(log, record):
    if moment == "before" and record.batch >= 2:
        die()
    real(log, record)
    if moment == "after" and record.batch >= 2:
        die()
RecordLog.write = write
spark = make_session(place.root / "spark")
run(words(spark, place, af.Approximate(100.0)).option("maxReplaySeconds", behind))
"""


def die_in_driver(place: Place, moment: str, *, behind: float = 0.0) -> None:
    """A driver is killed when it writes the record of batch 2; ``behind``: that may be after the batch has ended, or a
    later one may be written in its place.
    """
    with own_driver(DRIVER, place, moment, str(behind)) as driver:
        driver.wait_until_it_kills_itself()
    assert behind or not (place.checkpoint / "commits" / "2").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [False, True], ids=["state survives", "state is lost"])
def test_a_driver_killed_behind_its_records_is_continued(spark: SparkSession, place: Place, lost: bool) -> None:
    truth = write_text(place.input, 16)
    die_in_driver(place, "before", behind=10.0)
    if lost:
        assert place.lose_segments() == 2
    query = run(words(spark, place, af.Approximate(100.0)))
    assert worst(truth, counts(query)) <= query.bounds()["counts"] <= 100.0
    assert lost or query.ledger() == []


@pytest.mark.thorough
def test_a_killed_driver_is_continued_with_its_surviving_state(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 16)
    die_in_driver(place, "after")
    query = run(words(spark, place, af.Approximate(100.0)))
    assert query.totals.batches == 2
    assert counts(query) == truth
    assert query.ledger() == [] and query.bounds() == {"counts": 0.0}


def test_a_driver_killed_with_all_state_is_continued_inside_the_bound(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 16)
    die_in_driver(place, "before")
    assert place.lose_segments() == 2
    query = run(words(spark, place, af.Approximate(100.0)))
    assert 0 < worst(truth, counts(query)) <= query.bounds()["counts"] == 50.0
    assert [entry["batch"] for entry in query.ledger()] == [2, 2]


LIVING = """
import sys
import afspark as af
from afspark.errors import AnotherDriver
from tests.spark.streams import Place, words
from tests.spark.conftest import make_session
from pathlib import Path

place = Place(Path(sys.argv[1]))
spark = make_session(place.root / "spark")
query = words(spark, place, af.Approximate(100.0)).trigger(processingTime="0 seconds").start()
query.processAllAvailable()
(place.root / "idle").touch()
try:
    query.awaitTermination()
except AnotherDriver as error:
    (place.root / "told").write_text(str(error.process))
"""


def test_a_second_driver_is_refused_or_takes_over_from_one_that_is_idle(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    with own_driver(LIVING, place) as first:
        first.wait_for(place.root / "idle")
        writer = words(spark, place, af.Approximate(100.0))
        with pytest.raises(AnotherDriver) as caught:
            writer.start()
        assert caught.value.process == first.pid
        truth += write_text(place.input, 8, first=8)
        query = writer.start(takeover=True)
        query.awaitTermination()
        wait_for(place.root / "told")
        assert (place.root / "told").read_text() == str(os.getpid())
    assert counts(query) == truth
    assert query.ledger() == [] and query.bounds() == {"counts": 0.0}


@pytest.mark.parametrize(("remedy", "keyed"), [("mended", False), ("removed", True)], ids=["shares", "keyed"])
def test_a_file_cut_short_stops_the_query_and_the_rest_is_counted_once(
    spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture, remedy: str, keyed: bool
) -> None:
    truth = write_text(place.input, 12)
    bad = place.input / "part-0005.txt"
    content = bad.read_text()
    writer = words(spark, place, af.MiniBatch(), keyed=keyed)

    def cut(frame: DataFrame, batch: int) -> None:
        bad.write_text(content[:1_000])

    query = writer.foreachBatch(cut).start()
    with pytest.raises(InputError) as caught:
        query.awaitTermination()
    assert caught.value.path == str(bad)
    assert query.totals.batches == 1
    if remedy == "mended":
        bad.write_text(content)
    else:
        bad.unlink()
        truth.subtract(content.split())
    again = run(writer)
    assert counts(again) == +truth
    assert again.ledger() == []
    left_out = [line for line in caplog.messages if "leaves out input" in line]
    assert [str(bad) in line for line in left_out] == ([True] if remedy == "removed" else [])


def test_a_corrupt_parquet_file_is_named_and_the_state_kept(spark: SparkSession, place: Place) -> None:
    place.input.mkdir()
    table = pa.table({"user": ["a", "b", "a"], "size": [1, 2, 3]})
    for number in range(3):
        pq.write_table(table, place.input / f"{number}.parquet")
    bad = place.input / "3.parquet"
    bad.write_bytes((place.input / "0.parquet").read_bytes()[:-20])
    operator = af.HeavyHitters(keys=("user",), weight="size", threshold=1)
    writer = at(
        af.read_stream(spark).parquet(str(place.input)).apply(operator, tolerance=af.MiniBatch()).writeStream, place, 1
    )
    query = writer.start()
    with pytest.raises(InputError) as caught:
        query.awaitTermination()
    assert caught.value.path == str(bad)
    assert isinstance(query.exception(), InputError)
    pq.write_table(table, bad)
    again = run(writer)
    assert {row.user: row.estimate for row in again.results().collect()} == {"a": 16, "b": 8}
    assert again.ledger() == []


class LosesOutputs(Marked):
    """Removes all map outputs and dies, so that Spark computes them again for the retried task."""

    def __init__(self, marker: Path, shuffles: Path) -> None:
        super().__init__(marker, worker=1)
        self.shuffles = str(shuffles)

    def act(self) -> None:
        time.sleep(1.0)  # the other worker has applied the first reading by then
        os.unlink(self.marker)
        for file in Path(self.shuffles).rglob("shuffle_*"):
            file.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def salted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every task reads other words: not deterministic, but consistent within a reading."""
    context = TaskContext.get()
    assert context is not None
    text = batch.column("value").cast(pa.large_string())
    return pa.record_batch({"value": pc.replace_substring(text, "@", f"@{context.taskAttemptId()}")})


def test_a_retried_stage_with_other_contents_is_taken_back(spark: SparkSession, place: Place) -> None:
    place.input.mkdir()
    for number in range(2):
        lines = [f"f{number}w{word}@" for word in range(200)]
        (place.input / f"{number}.txt").write_text("\n".join(lines) + "\n")
    marker = place.root / "marker"
    marker.touch()
    local = Path(spark.sparkContext.getConf().get("spark.local.dir") or "")
    stream = af.read_stream(spark).text(str(place.input)).map(salted)
    stateful = stream.apply(LosesOutputs(marker, local), tolerance=af.MiniBatch(), keyed=True)
    query = run(at(stateful.writeStream, place, 1 << 20))
    assert not marker.exists()
    assert query.lastProgress is not None and query.lastProgress["tries"] > 1
    got = counts(query)
    assert len(got) == 400 and set(got.values()) == {1}
    for number in range(2):
        assert len({word.partition("@")[2] for word in got if word.startswith(f"f{number}")}) == 1


def test_rows_of_a_batch_are_delivered_although_all_state_is_lost_before(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 12)
    folded: dict[str, int] = {}
    lost: list[int] = []

    def deliver(frame: DataFrame, batch: int) -> None:
        if batch == 1 and not lost:
            lost.append(place.lose_segments())
        folded.update({row.word: row["count"] for row in frame.collect()})

    query = run(words(spark, place, af.MiniBatch()).outputMode("update").foreachBatch(deliver))
    assert lost == [2]
    assert folded == truth == counts(query)
    assert {entry["worker"] for entry in query.ledger()} == {0, 1}


def test_a_sink_that_raises_stops_the_query_and_can_be_mended(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 8)
    broken = [True]
    folded: dict[str, int] = {}

    def deliver(frame: DataFrame, batch: int) -> None:
        if batch == 1 and broken:
            raise ConnectionError("the sink is away")
        folded.update({row.word: row["count"] for row in frame.collect()})

    writer = words(spark, place, af.MiniBatch()).outputMode("update").foreachBatch(deliver)
    query = writer.start()
    with pytest.raises(ConnectionError):
        query.awaitTermination()
    broken.clear()
    again = run(writer)
    assert folded == truth == counts(again)
    assert again.ledger() == []


@pytest.mark.parametrize("stopped", [False, True], ids=["all read", "stopped"])
def test_a_query_that_has_ended_in_an_orderly_way_leaves_nothing_to_replay(
    spark: SparkSession, place: Place, stopped: bool
) -> None:
    """No barrier was due since the first batch."""
    truth = write_text(place.input, 12)
    writer = words(spark, place, af.BarrierSnapshot(batches=1000))
    if stopped:
        query = writer.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        query.stop()
    else:
        query = writer.start()
        query.awaitTermination()
    assert query.totals.batches > 1 and query.lastProgress is not None
    last = query.snapshots()[-1]
    assert (last["stage"], last["barrier"]) == ("complete", query.lastProgress["batch"])
    assert place.lose_segments() == 2
    truth += write_text(place.input, 4, first=12)
    query = run(words(spark, place, af.BarrierSnapshot(batches=1000)))
    assert counts(query) == truth and query.bounds() == {"counts": 0.0}
    assert [entry["replayed_batches"] for entry in query.ledger()] == [0, 0]
