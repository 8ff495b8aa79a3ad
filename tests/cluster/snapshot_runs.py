"""A query under barrier snapshots: sums of floats, whose last bits depend on the order in which all items came.

It notes in a file which worker begins to apply which batch, and things happen to it at the end of batches.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.cluster.spark.anchors import slots_by_host
from afspark.cluster.spark.spark_host import executor_pid
from afspark.resident.spool import SPOOL
from afspark.store import RecordLog
from tests.cluster.machines import HOSTS, lose_host
from tests.spark.streams import Place, at

#: What an executor is killed by, once.
MARKER = "kill-the-executor"
APPLIED = "applied"


def weight(word: str) -> float:
    return 1 / 3 + len(word) / 10


def weighed(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Words, each with a number that no float holds exactly."""
    text = pc.utf8_trim_whitespace(lines.column("value").cast(pa.large_string()))
    words = pc.list_flatten(pc.utf8_split_whitespace(text))
    lengths = pc.utf8_length(words).cast(pa.float64())
    return pa.record_batch({"word": words, "weight": pc.add(1 / 3, pc.divide(lengths, 10.0))})


class Sums(af.Operator):
    """Adds up weights by word. Worker 1 kills its executor in the middle of a batch if it meets the marker."""

    key = ("word",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"sums": af.HashTable(value="float64")}

    def begin(self, states: Mapping[str, Any], context: af.WorkerContext) -> None:
        self.worker = context.worker
        with open(f"{self.folder}/{APPLIED}", "a") as file:
            file.write(f"{context.worker} {context.batch}\n")

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        middle = items.num_rows // 2
        self.add(items.slice(0, middle), states)
        if self.worker == 1 and os.path.exists(f"{self.folder}/{MARKER}"):
            os.unlink(f"{self.folder}/{MARKER}")
            executor = executor_pid()
            assert executor is not None
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        self.add(items.slice(middle), states)

    def add(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("word"), items.column("weight"))

    def results(self, shares: Sequence[af.Share]) -> pa.Table:
        """Every cell of every worker: merged by Spark, sums of floats come in any order."""
        cells = [
            share.cells["sums"].append_column("worker", pa.array([share.worker] * share.cells["sums"].num_rows))
            for share in shares
        ]
        return pa.Table.from_batches(cells)


def spooled(place: Place, host: str) -> list[Path]:
    """Backups on a host that the store may not have yet."""
    return list((place.segments / host).rglob(f"{SPOOL}*"))


def die_before_record(batch: int) -> None:
    """This driver dies when it begins to write the record of a batch."""
    real = RecordLog.write

    def write(log: RecordLog, record: Any) -> None:
        if record.batch >= batch:
            os.kill(os.getpid(), signal.SIGKILL)
        real(log, record)

    mock.patch.object(RecordLog, "write", write).start()


def carry_out_snapshots(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """A worker on each host. ``kill_in``: the batch in which an executor is killed. ``lose``: a host that is lost when
    a batch has ended, once: the first one that is a barrier, or with ``uploading`` while something of the host is on
    its way to the store. ``die_before_record``: of a batch.
    """
    place = Place(Path(request["place"]))
    lost: list[int] = []
    while len(slots_by_host(spark.sparkContext)) < request.get("hosts", len(HOSTS)):
        # One that was away before has no executor of this session yet.
        time.sleep(0.1)
    if "die_before_record" in request:
        die_before_record(request["die_before_record"])

    def deliver(frame: DataFrame, batch: int) -> None:
        if batch + 1 == request.get("kill_in"):
            (place.root / MARKER).touch()
        host = request.get("lose")
        if host and batch > 0 and not lost and (spooled(place, host) if request.get("uploading") else due(batch)):
            lost.append(batch)
            lose_host(host, place.segments / host)

    def due(batch: int) -> bool:
        return any(one["barrier"] == batch and one["stage"] == "due" for one in query.snapshots())

    stream = af.read_stream(spark).text(str(place.input), blocks=True).map(weighed)
    tolerance = af.BarrierSnapshot(batches=2)
    sums = stream.apply(Sums(str(place.root)), workers=2, tolerance=tolerance, keyed=request.get("keyed", False))
    writer = at(sums.writeStream, place).option("hostGraceSeconds", request.get("grace", 30))
    if "bytes_per_second" in request:
        writer = writer.option("storeBytesPerSecond", request["bytes_per_second"])
    query = writer.foreachBatch(deliver).start()
    query.awaitTermination()
    return {
        "sums": {f"{row[2]} {bytes(row[0]).decode()}": row[1].hex() for row in query.results().collect()},
        "ledger": query.ledger(),
        "bound": query.bounds()["sums"],
        "snapshots": query.snapshots(),
        "homes": [row["host"] for row in query.tolerance()],
        "lost": lost,
    }
