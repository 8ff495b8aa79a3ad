"""A driver for cluster tests: takes one request a line on standard input, answers with one line of JSON.

A request describes a count of words and what happens at the end of which batch::

    {"place": folder, "tolerance": ["approximate", 100], "events": {"1": ["lose", "127.0.0.2"]}, ...}
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.cluster.spark.anchors import slots_by_host
from afspark.cluster.spark.spark_host import executor_pid
from afspark.protocol.fault_plan import FaultPlan
from afspark.store import RecordLog
from tests.cluster import snapshot_runs, training_cluster
from tests.cluster.machines import HOSTS, executors, lose_host, signal_host
from tests.cluster.scheme_changes import carry_out_changes
from tests.cluster.snapshot_runs import carry_out_snapshots
from tests.cluster.training_cluster import carry_out_training
from tests.spark import stages
from tests.spark.streams import Place, counts, words

#: How long a host is frozen that wakes up again.
NAP_SECONDS = 5.0

# What this module defines travels to the executors with the tasks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
cloudpickle.register_pickle_by_value(stages)  # type: ignore[no-untyped-call]
cloudpickle.register_pickle_by_value(snapshot_runs)  # type: ignore[no-untyped-call]
cloudpickle.register_pickle_by_value(training_cluster)  # type: ignore[no-untyped-call]


def make_session(master: str, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    return af.session(
        master,
        app_name="afspark-cluster-tests",
        config={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            **settings,
        },
    )


class KillsExecutor(af.WordCount):
    """Worker 1 kills its executor half way through the batch in which it meets the marker, once."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker = marker

    def begin(self, states: Mapping[str, Any], context: af.WorkerContext) -> None:
        self.worker = context.worker

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        middle = items.num_rows // 2
        super().process(items.slice(0, middle), states)
        if self.worker == 1 and os.path.exists(self.marker):
            time.sleep(1.5)  # workers of other hosts have applied the batch by then
            os.unlink(self.marker)
            executor = executor_pid()
            assert executor is not None
            os.kill(executor, signal.SIGKILL)
            time.sleep(60)
        super().process(items.slice(middle), states)


class CountsProcesses(af.WordCount):
    """Counts a word as often again as its process says: no two replicas do the same."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        super().process(items, states)
        states["counts"].add(items.column("word").slice(0, 1), os.getpid())


def salted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Every task reads other words: not deterministic, but consistent within a reading."""
    context = TaskContext.get()
    assert context is not None
    text = pc.replace_substring(batch.column("value").cast(pa.large_string()), "w", f"w{context.taskAttemptId()}x")
    return pa.record_batch({"value": text.cast(pa.large_binary())})


def kill(place: Place, host: str) -> None:
    """The executor's process is gone, its state is not."""
    for pid in executors(host):
        os.kill(pid, signal.SIGKILL)


def lose(place: Place, host: str) -> None:
    """The host has restarted: executor and resident state are gone."""
    lose_host(host, place.segments / host)


def freeze(place: Place, host: str) -> None:
    """Nothing of the host's executors runs: neither the JVM nor its Python processes."""
    signal_host(host, signal.SIGSTOP)


def thaw(place: Place, host: str) -> None:
    signal_host(host, signal.SIGCONT)


def nap(place: Place, host: str) -> None:
    """The host is frozen until the driver has noticed, and a while longer."""
    freeze(place, host)
    threading.Timer(NAP_SECONDS, thaw, (place, host)).start()


def gone(place: Place, group: str) -> None:
    """The host never comes back."""
    os.killpg(int(group), signal.SIGKILL)


def occupy(place: Place, seconds: str) -> None:
    """Another job takes every slot for a while, and caches more than executors can hold."""
    spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    context = spark.sparkContext
    nap = float(seconds)

    def job() -> None:
        blocks = context.parallelize(range(24), 24).map(lambda i: bytearray(os.urandom(1 << 20)) * 8)
        blocks.persist().count()
        context.parallelize(range(4), 4).foreach(lambda i: time.sleep(nap))

    threading.Thread(target=job, daemon=True).start()
    time.sleep(1.0)


def mark(place: Place, name: str) -> None:
    (place.root / name).touch()


def die_after_record(place: Place, batch: str) -> None:
    real = RecordLog.write

    def write(log: RecordLog, record: Any) -> None:
        real(log, record)
        if record.batch == int(batch):
            os.kill(os.getpid(), signal.SIGKILL)

    mock.patch.object(RecordLog, "write", write).start()


EVENTS: dict[str, Callable[[Place, str], None]] = {
    event.__name__: event for event in (kill, lose, freeze, thaw, nap, gone, occupy, mark, die_after_record)
}
POLICIES = {
    "none": af.Nothing,
    "minibatch": af.MiniBatch,
    "snapshot": af.BarrierSnapshot,
    "approximate": af.Approximate,
    "active-replication": af.ActiveReplication,
    "active-standby": af.ActiveStandby,
    "hot-standby": af.HotStandby,
    "cold-standby": af.ColdStandby,
    "deployed": af.Deployed,
    "passive-replication": af.PassiveReplication,
    # Runs are short: it must not take its time.
    "adaptive": partial(af.Adaptive, every=0.1, cooldown=0.5),
}


def await_secondaries(query: af.Query, seconds: float = 20.0) -> None:
    """On a busy machine batches would be over before a secondary has come to the first."""
    deadline = time.monotonic() + seconds
    while not query._engine._secondaries._job.is_done and time.monotonic() < deadline:
        time.sleep(0.05)


def await_executors(spark: SparkSession, seconds: float = 60.0) -> None:
    """A host that the test before has lost may have no executor yet."""
    deadline = time.monotonic() + seconds
    while len(slots_by_host(spark.sparkContext)) < len(HOSTS) and time.monotonic() < deadline:
        time.sleep(0.1)


def with_options(writer: af.StreamWriter, request: dict[str, Any]) -> af.StreamWriter:
    writer = writer.option("hostGraceSeconds", request.get("grace", 30))
    for option in ("silentSeconds", "maxReplaySeconds"):
        if option in request:
            writer = writer.option(option, request[option])
    return writer


def carry_out(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    await_executors(spark)
    place = Place(Path(request["place"]))
    name, *limits = request["tolerance"]
    operator = KillsExecutor(str(place.root / "marker")) if request.get("fragile") else af.WordCount()
    if request.get("differs"):
        operator = CountsProcesses()
    homes: list[list[str]] = []

    def deliver(frame: DataFrame, batch: int) -> None:
        homes.append([row["host"] for row in query.tolerance()])
        await_secondaries(query)
        event = request.get("events", {}).get(str(batch))
        if event is not None:
            EVENTS[event[0]](place, event[1])

    writer = words(
        spark,
        place,
        POLICIES[name](*limits),
        operator=operator,
        workers=request.get("workers", 4),
        keyed=request.get("keyed", False),
        transforms=(salted,) if request.get("salted") else (),
        faults=FaultPlan.seeded(request["failures"], batches=request["batches"], seed=1)
        if "failures" in request
        else None,
    )
    query = with_options(writer, request).foreachBatch(deliver).start()
    query.awaitTermination()
    return {
        "counts": counts(query),
        "ledger": query.ledger(),
        "bound": query.bounds()["counts"],
        "homes": homes,
        "batches": query.totals.batches,
        "tries": query.lastProgress["tries"] if query.lastProgress else None,
        "failures": [[failure.host, failure.kind] for failure in query._cluster.failures()],
        "decisions": query.decisions(),
    }


class EventfulRun(stages.Run):
    """The three operators, with something happening at the end of some batches."""

    def __init__(self, place: Place, tolerance: af.Tolerance, events: dict[str, list[str]]) -> None:
        super().__init__(place, tolerance)
        self.events = events

    def happen(self, frame: DataFrame, batch: int) -> None:
        event = self.events.get(str(batch))
        if event is not None:
            EVENTS[event[0]](self.place, event[1])

    def writer(self, spark: SparkSession, faults: FaultPlan | None = None) -> af.StreamWriter:
        first = super().writer(spark, faults)
        (total,) = first.others
        return replace(first, others=(total.outputMode("complete").foreachBatch(self.happen),))


def carry_out_stages(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    name, *limits = request["tolerance"]
    attempt = EventfulRun(Place(Path(request["place"])), POLICIES[name](*limits), request.get("events", {}))
    query = with_options(attempt.writer(spark), request).start()
    query.awaitTermination()
    query.end()
    return {
        "windows": [[window, key, count] for (window, key), count in attempt.windows.items()],
        "bounds": list(attempt.bounds.items()),
        "twice": [window for window, batches in attempt.delivered.items() if len(batches) > 1],
        "ledger": query.ledger(),
        "total": stages.numbers(query, "total"),
        "gate": stages.numbers(query, "gate"),
        "hosts": sorted({row["host"] for row in query.tolerance()}),
    }


class CountItems(af.Operator):
    """Counts every item by its number."""

    key = ("item",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("item"), 1)


def carry_out_push(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Receivers on the executors; says where, and goes on until it is told to stop and nothing waits."""
    await_executors(spark)
    place = Place(Path(request["place"]))
    name, limits = request["tolerance"][0], request["tolerance"][1:]
    stream = af.read_stream(spark).pushed(
        pa.schema([("item", pa.int64())]), tick_seconds=0.5, where="executors", receivers=2
    )
    counted = stream.apply(CountItems(), name="count", workers=2, tolerance=POLICIES[name](*limits), keyed=False)
    query = (
        counted.writeStream.option("checkpointLocation", place.checkpoint)
        .option("segments", place.segments)
        .option("hostGraceSeconds", 30)
        .start()
    )
    (place.root / "address.tmp").write_text(query.receivers[0])
    (place.root / "address.tmp").rename(place.root / "address")
    while not (place.root / "stop").exists() or _waits(query):
        query.raise_failure()
        time.sleep(0.2)
    query.stop()
    return {
        "counts": {str(row[0]): row[1] for row in query.results().collect()},
        "ledger": query.ledger(),
        "lost": sum(loss["items"] for loss in query.item_losses()),
        "bound": query.bounds()["counts"],
    }


def _waits(query: af.Query) -> bool:
    found = query.receiverStats().values()
    return len(found) < 2 or any(lane["pending_entries"] for one in found for lane in one["lanes"].values())


def main(master: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    spark = make_session(master)
    for line in sys.stdin:
        try:
            request = json.loads(line)
            kinds = {
                "stages": carry_out_stages,
                "push": carry_out_push,
                "snapshots": carry_out_snapshots,
                "training": carry_out_training,
                "changes": carry_out_changes,
            }
            answer = next((kind for name, kind in kinds.items() if request.get(name)), carry_out)(spark, request)
        except Exception as error:  # noqa: BLE001 (the test that gave the request hears of it)
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1])
