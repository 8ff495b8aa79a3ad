"""Spark's DataFrames as input: lost workers, and drivers started again, read their past batches once more."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import afspark as af
from afspark.errors import UsageError
from afspark.protocol.lifecycle import Present
from afspark.resident import examine
from tests.spark.own_driver import own_driver
from tests.spark.stages import Gate
from tests.spark.streams import Place, at, counts, run, worst, write_text

#: No barrier comes in these tests after that of the first batch, which every driver waits for.
ONE_SNAPSHOT = af.BarrierSnapshot(batches=100)


def lines(spark: SparkSession, place: Place) -> DataFrame:
    return spark.readStream.option("maxFilesPerTrigger", 2).text(str(place.input))


def lose(place: Place, operator: str, worker: int) -> None:
    """What a worker has on its host is gone."""
    for path in place.segments.glob("*/*/*-[0-9]*"):
        present = examine(path)
        owner = (present.identity.operator, present.identity.worker) if isinstance(present, Present) else None
        if owner == (operator, worker):
            shutil.rmtree(path)
            return
    raise AssertionError(f"worker {worker} of {operator} had nothing to lose")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("tolerance", "latency"),
    [
        (ONE_SNAPSHOT, 0.0),
        pytest.param(af.MiniBatch(), 0.4, marks=pytest.mark.thorough),
        pytest.param(af.Approximate(100.0), 0.4, marks=pytest.mark.thorough),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_lost_worker_replays_what_spark_handed_over(
    spark: SparkSession, place: Place, tolerance: af.Tolerance, latency: float
) -> None:
    truth = write_text(place.input, 10)
    folded: dict[str, int] = {}
    lost: list[int] = []

    def deliver(frame: DataFrame, batch: int) -> None:
        if batch == 3 and not lost:
            lost.append(batch)
            lose(place, "words", 0)
        folded.update({row.word: row["count"] for row in frame.collect()})

    stream = af.read_stream(spark).frame(lines(spark, place)).apply(af.WordCount(), name="words", tolerance=tolerance)
    writer = at(stream.writeStream.outputMode("update").foreachBatch(deliver), place)
    query = run(writer.option("storeLatencySeconds", latency))
    assert {entry["worker"] for entry in query.ledger()} == {0}
    assert all(entry["replayed_batches"] > 0 for entry in query.ledger())
    assert worst(truth, counts(query)) <= query.bounds()["counts"] <= 100.0
    if tolerance.name != "approximate":
        assert counts(query) == truth and folded == truth and query.bounds() == {"counts": 0.0}


DRIVER = """
import os, signal, sys
from pathlib import Path
from tests.spark.conftest import make_session
from tests.spark.streams import Place, run
from tests.spark.test_frames import chain

place = Place(Path(sys.argv[1]))

def die(frame, batch):
    if batch == 4:
        os.kill(os.getpid(), signal.SIGKILL)

run(chain(make_session(place.root / "spark"), place).foreachBatch(die))
"""


def chain(spark: SparkSession, place: Place, written: Place | None = None) -> af.StreamWriter:
    """A gate, and a count of the words that pass it; ``written``: where the files are, if elsewhere."""
    gate = (
        af.read_stream(spark).frame(lines(spark, written or place)).apply(Gate(), name="gate", tolerance=ONE_SNAPSHOT)
    )
    return at(gate.apply(af.WordCount(), name="words", tolerance=ONE_SNAPSHOT).writeStream.outputMode("update"), place)


class Listener(StreamingQueryListener):
    """Notes which queries its session has."""

    def __init__(self) -> None:
        self.started: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:
        self.started.add(str(event.id))

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Place, dict[str, int]]:
    """A driver was killed in batch 4, after Spark had committed batch 3, with a record of batch 0 alone."""
    place = Place(tmp_path_factory.mktemp("killed"))
    truth = write_text(place.input, 12)
    with own_driver(DRIVER, place) as driver:
        driver.wait_until_it_kills_itself()
    assert (place.checkpoint / "commits" / "3").exists() and not (place.checkpoint / "commits" / "4").exists()
    assert len(list((place.checkpoint / "afspark" / "epochs").glob("*/records/*"))) == 1
    return place, truth


def scratch() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("afspark-replay-*"))


@pytest.mark.thorough
def test_a_started_driver_has_spark_run_past_batches_again(
    spark: SparkSession, place: Place, killed: tuple[Place, dict[str, int]]
) -> None:
    before, truth = killed
    shutil.copytree(before.checkpoint, place.checkpoint)  # and no state
    listener, batches = Listener(), []
    spark.streams.addListener(listener)
    try:
        query = run(chain(spark, place, before).foreachBatch(lambda frame, batch: batches.append(batch)))
    finally:
        spark.streams.removeListener(listener)
    assert counts(query) == truth and query.bounds() == {"counts": 0.0}
    assert batches == [4, 5], "sinks have had what was committed"
    assert {entry["replayed_batches"] for entry in query.ledger()} == {3}
    assert {entry["operator"] for entry in query.ledger()} == {"gate", "words"}
    assert listener.started == {str(query.spark_query.id)} and scratch() == []


def test_a_file_that_is_gone_is_told(spark: SparkSession, place: Place, killed: tuple[Place, dict[str, int]]) -> None:
    before, truth = killed
    shutil.copytree(before.checkpoint, place.checkpoint)  # and no state
    log = (place.checkpoint / "sources" / "0" / "2").read_text()
    gone = next(path for path in sorted(before.input.iterdir()) if path.name in log)
    content = gone.read_text()
    gone.unlink()
    try:
        query = run(chain(spark, place, before))
    finally:
        gone.write_text(content)
    assert worst(truth, counts(query)) > 0 and query.bounds() == {"counts": math.inf}
    assert any(gone.name in name for entry in query.ledger() for name in entry["damaged"])


def test_a_started_driver_replays_for_the_lost_alone(spark: SparkSession, killed: tuple[Place, dict[str, int]]) -> None:
    """The others had got the same partitions of the same rows, and keep their state."""
    place, truth = killed
    lose(place, "gate", 1)
    query = run(chain(spark, place).foreachBatch(lambda frame, batch: None))
    assert counts(query) == truth and query.bounds() == {"counts": 0.0}
    told = [(entry["operator"], entry["worker"], entry["replayed_batches"]) for entry in query.ledger()]
    assert told == [("gate", 1, 3)]


def test_what_a_plan_says(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 1)
    text = lines(spark, place)
    rate = spark.readStream.format("rate").load()
    socket = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", 1).load()
    cleaned = spark.readStream.option("cleanSource", "delete").text(str(place.input))
    for frame in (text, rate.selectExpr("string(value)"), text.select(F.explode(F.split("value", " ")).alias("value"))):
        af.read_stream(spark).frame(frame).apply(af.WordCount(), tolerance=ONE_SNAPSHOT).writeStream.check()
    for frame, reason in (
        (text.groupBy("value").count(), "Aggregate"),
        (text.dropDuplicates(), "Deduplicate"),
        (text.join(spark.createDataFrame([("a", 1)], ["value", "n"]), "value"), "Join"),
        (text.withColumn("r", F.rand()), "rand"),
        (socket, "socket"),
        (cleaned, "cleanSource"),
    ):
        stream = af.read_stream(spark).frame(frame).apply(af.WordCount(), tolerance=ONE_SNAPSHOT)
        with pytest.raises(UsageError, match=reason) as caught:
            stream.writeStream.check()
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="Deduplicate"):
        af.read_stream(spark).frame(text.dropDuplicates(), replayable=True)
