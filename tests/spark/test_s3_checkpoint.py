"""Checkpoints on a real S3 server, with what pip installs: Spark has no connector."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.api.inspection import inspect
from afspark.bench.object_server import KEY, SECRET, object_server
from afspark.cli.batch_files import BatchFiles
from afspark.errors import UsageError
from afspark.protocol.fault_plan import FaultPhase
from afspark.resident.segment_root import BASE_VARIABLE
from tests.spark.conftest import ROOT
from tests.spark.streams import Place, affected, counts, run, words, worst, write_text

SECONDS = 300


def test_a_query_goes_on_from_s3_alone(
    spark: SparkSession, place: Place, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    truth = write_text(place.input, 12)
    with caplog.at_level(logging.WARNING):
        first = run(words(spark, place, af.MiniBatch()).option("checkpointLocation", address))
    (told,) = [one.getMessage() for one in caplog.records if "Spark cannot write to" in one.getMessage()]
    assert "s3://bucket/" in told and SECRET not in told
    assert counts(first) == truth
    assert not place.checkpoint.exists()
    asked = [one["requests"] for one in first.recentProgress]
    assert all(one["puts"] >= 1 for one in asked), "what belongs to the batch"
    assert inspect(address).spark_batch == inspect(address).batch == first.recentProgress[-1]["batchId"]
    saved = first.savepoint("monday")

    truth.update(write_text(place.input, 4, first=12))
    assert place.lose_segments()
    second = run(words(spark, place, af.MiniBatch()).option("checkpointLocation", address))
    assert second.resumed and second.id == first.id and second.recentProgress[0]["batchId"] == len(asked)
    assert counts(second) == truth and not any(entry["counted"] for entry in second.ledger())

    place.lose_segments()
    other = address.replace("?", "-other?")
    third = run(words(spark, place, af.MiniBatch()).option("checkpointLocation", other).option("savepoint", saved))
    assert counts(third) == truth and third.id != first.id


def test_state_that_spark_keeps_needs_a_connector(spark: SparkSession, place: Place, address: str) -> None:
    write_text(place.input, 2)
    distinct = spark.readStream.text(str(place.input)).dropDuplicates()
    stateful = af.read_stream(spark).frame(distinct).map(bytes_of).apply(af.WordCount(), workers=2)
    with pytest.raises(UsageError, match="hadoop-aws") as refused:
        stateful.writeStream.option("checkpointLocation", address).option("segments", place.segments).start()
    assert refused.value.nodes == ["Deduplicate"]


def bytes_of(lines: object) -> object:
    return lines


@pytest.mark.thorough
def test_batches_of_a_dataframe_are_known_on_another_host(spark: SparkSession, place: Place, address: str) -> None:
    """Spark's file source keeps a log of its own, which is part of the copy."""
    truth = write_text(place.input, 4)

    def query() -> af.Query:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(place.input))
        counted = af.read_stream(spark).frame(lines).apply(af.WordCount(), workers=2, tolerance=af.MiniBatch())
        writer = counted.writeStream.option("checkpointLocation", address).option("segments", place.segments)
        return run(writer.trigger(availableNow=True))

    query()
    truth.update(write_text(place.input, 2, first=4))
    place.lose_segments()
    again = query()
    assert again.recentProgress[0]["batchId"] == 4
    assert counts(again) == truth


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def command(address: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    line = "run wordcount --workers 2 --batch-size 60kB --quiet --tolerance minibatch"
    return subprocess.Popen(
        [sys.executable, "-m", "afspark", *line.split(), "--checkpoint", address, *more],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            BASE_VARIABLE: str(folder / "segments"),
        },
    )


def committed(address: str) -> int:
    try:
        return inspect(address).spark_batch or 0
    except UsageError:
        return 0


@pytest.mark.thorough
def test_everything_is_killed_and_another_host_is_exact(tmp_path: Path) -> None:
    """The driver with all its processes, their states, and the server, in the midst of batches."""
    write_text(tmp_path / "input", 40)
    with object_server() as own:
        address = own.address("killed").replace(f"{KEY}:{SECRET}@", "")
        inside = own.address("killed")
        running = command(address, tmp_path, "--input", str(tmp_path / "input"))
        try:
            until(lambda: committed(inside) >= 2 or running.poll() is not None)
            # The server first: what is under way then waits, and goes on when it is back.
            own.kill()
            time.sleep(1)
            own.start()
            reached = committed(inside)
            until(lambda: committed(inside) > reached or running.poll() is not None)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
        shutil.rmtree(tmp_path / "segments")
        report = tmp_path / "report.json"
        again = command(address, tmp_path, "--input", str(tmp_path / "input"), "--verify", "--json", str(report))
        _, told = again.communicate(timeout=SECONDS)
        assert again.returncode == 0, told
        found = json.loads(report.read_text())
    assert found["resumed"] and found["observed"]["state"] == 0
    assert found["requests"]["puts"] > 0


@pytest.mark.thorough
def test_bounds_hold_when_workers_are_lost_on_s3(spark: SparkSession, place: Place, address: str) -> None:
    truth = write_text(place.input, 8)
    tolerance = af.Approximate(theta=200)
    faults = affected(FaultPhase.APPLYING, 0, 1)
    first = run(words(spark, place, tolerance, faults=faults).option("checkpointLocation", address))
    assert first.ledger(), "workers were killed"
    assert place.lose_segments()
    truth.update(write_text(place.input, 4, first=8))
    second = run(words(spark, place, tolerance).option("checkpointLocation", address))
    assert worst(truth, counts(second)) <= second.bounds()["counts"] <= 200


def test_the_server_may_be_away_while_a_query_runs(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 16)
    with object_server() as own:
        away: list[int] = []

        def leave(rows: object, batch: int) -> None:
            if batch == 1:
                own.kill()
                own.start()
                away.append(batch)

        writer = words(spark, place, af.MiniBatch(), keyed=True).outputMode("update").foreachBatch(leave)
        query = run(writer.option("checkpointLocation", own.address("away")))
        assert away and counts(query) == truth


@pytest.mark.thorough
def test_rows_that_commands_keep_are_kept_on_s3(spark: SparkSession, place: Place, address: str) -> None:
    """Spark cannot write them there, so they go through the driver."""
    write_text(place.input, 4)
    lines = [
        line for file in sorted(place.input.iterdir()) for line in file.read_text().splitlines() if "w1 w2" in line
    ]
    found = af.read_stream(spark).text(str(place.input), blocks=True).apply(af.Grep("w1 w2"), workers=2)
    kept = BatchFiles("lines")
    writer = kept.written(found, address).option("checkpointLocation", address).option("segments", place.segments)
    run(writer.trigger(availableNow=True))
    rows = kept.read(spark, address, "line string").collect()
    assert sorted(row[0] for row in rows) == sorted(lines)
    assert BatchFiles("none").read(spark, address, "line string").count() == 0
