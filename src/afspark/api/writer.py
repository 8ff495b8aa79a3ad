"""How results leave a pipeline, and how it is started."""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession

from afspark.api.assembly import assemble
from afspark.api.query import Deliver, Outlet, Query
from afspark.api.stream import StatefulStream
from afspark.cluster.liveness import Patience
from afspark.cluster.spark.anchors import registered_slots
from afspark.cluster.spark.offset_source import FORMAT, OffsetSource
from afspark.cluster.spark.past_frames import SparkPastFrames
from afspark.cluster.spark.session import LOCAL_FILE_MANAGER, check_session
from afspark.cluster.spark.spark_cluster import SparkCluster
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.placement import check_slots
from afspark.coordinator.receivers.receivers import recorded_lanes
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES, RunOptions
from afspark.coordinator.savepoint_copying import start_from_savepoint
from afspark.errors import UsageError
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import Rewrite
from afspark.graph.stream_frame import StreamFrame
from afspark.protocol.fault_plan import FaultPlan
from afspark.sources import Source
from afspark.store import Throttle, claim, open_store
from afspark.store.naming import FOLDER, source_folder

MODES = ("update", "complete", "append")
OWN_OPTIONS = {
    "checkpointLocation",
    "batchBytes",
    "segments",
    "hostGraceSeconds",
    "silentSeconds",
    "leaseSeconds",
    "storeWaitSeconds",
    "bounds",
    "storeLatencySeconds",
    "storeBytesPerSecond",
    "quarantineBytes",
    "maxReplaySeconds",
    "maxKeptBytes",
    "savepoint",
}
_OWN_BY_LOWER = {name.lower(): name for name in OWN_OPTIONS}


@dataclass(frozen=True)
class StreamWriter:
    """How and when results leave the pipeline. Every method gives a new writer; ``start`` runs it."""

    stateful: StatefulStream
    mode: str = "complete"
    deliver: Deliver | None = None
    sink: str | None = None
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    triggers: Mapping[str, Any] = field(default_factory=dict)
    query_name: str | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    others: tuple[StreamWriter, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()

    def outputMode(self, mode: str) -> StreamWriter:
        """``update``: the rows each batch changed; ``complete``: all results after each batch; ``append``: the
        windows each batch closed, or without windows the items it sent.
        """
        if mode not in MODES:
            raise UsageError(f"Output mode {mode!r} is not known.", remedy="Use 'update', 'complete' or 'append'.")
        return replace(self, mode=mode)

    def foreachBatch(self, deliver: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Calls ``deliver(frame, batch)`` after each batch. Called again with the same batch after a crash."""
        return replace(self, deliver=deliver)

    def format(self, sink: str) -> StreamWriter:
        """A Spark batch sink (``parquet``, ``noop``, ``console`` …), written in append mode for each batch."""
        return replace(self, sink=sink)

    def option(self, key: str, value: object) -> StreamWriter:
        """Capitals in names do not matter, as with Spark's own options.

        ``checkpointLocation``, ``batchBytes``, ``segments``, ``hostGraceSeconds``, ``silentSeconds`` (how long an
        executor may owe an answer before its host counts as away), ``leaseSeconds`` (how long a driver on another
        machine may be silent before it counts as dead), ``storeWaitSeconds`` (how long the checkpoint's place may be
        gone, or hang, before the query stops), ``bounds`` (a column with the bound realised so far),
        ``quarantineBytes`` (of bad items, for each operator), ``maxReplaySeconds`` (of processing that a lost worker
        may have to repeat; 0: every batch waits for the store), ``maxKeptBytes`` (that a worker keeps for others until
        a durable commit record covers them), ``savepoint`` (where a savepoint is from which the query starts; its
        checkpoint has to be empty), or one for the sink.
        """
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return replace(self, options={**self.options, _OWN_BY_LOWER.get(key.lower(), key): text})

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Spark's triggers: ``availableNow=True`` or ``processingTime='10 seconds'``."""
        return replace(self, triggers=trigger)

    def queryName(self, name: str) -> StreamWriter:
        return replace(self, query_name=name)

    def rewritten(self, rewrites: tuple[Rewrite, ...]) -> StreamWriter:
        """What runs is what these rewrites make of the pipeline in the end; for experiments."""
        return replace(self, rewrites=rewrites)

    def inject(self, faults: FaultPlan) -> StreamWriter:
        """Makes failures happen while the query runs, as the plan says."""
        return replace(self, faults=faults)

    def also(self, other: StreamWriter) -> StreamWriter:
        """A second sink in the same query. Checkpoint, trigger and other run options are those of the first."""
        return replace(self, others=(*self.others, other))

    def start(self, path: str | None = None, *, takeover: bool = False) -> Query:
        """Checks everything that can be checked, then starts.

        `AnotherDriver` if one that lives runs on this checkpoint; with ``takeover`` that one has to stop instead.
        """
        first = replace(self, path=path or self.path)
        spark = first.stateful.spark
        if spark is None:
            raise UsageError("A pipeline of a test has no Spark session.", remedy="Return it to afspark.testing.run.")
        check_session(spark)
        writers = [first, *first.others]
        kept = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain", "100") or 100)
        options = replace(first._run_options(), takeover=takeover, offsets_kept=kept)
        pipeline = first.check(options.batch_bytes)
        for source in pipeline.sources.values():
            if isinstance(source, Source):
                source.validate()
        workers = max(node.workers for node in pipeline.nodes)
        receivers = sum(
            min(source.receivers, source.lanes) for source in pipeline.pushed.values() if source.where == "executors"
        )
        check_slots(registered_slots(spark.sparkContext, workers + receivers), workers, receivers)
        checkpoint = open_store(options.checkpoint)
        checkpoint.check_writable()
        if "savepoint" in first.options:
            start_from_savepoint(open_store(first.options["savepoint"]), checkpoint, pipeline)
        identity = claim(checkpoint.below(FOLDER), pipeline.fingerprint(), pipeline.settings())
        outlets = [outlet for writer in writers if (outlet := writer._outlet()) is not None]
        standby = any(node.tolerance.has_secondaries for node in pipeline.nodes)
        elsewhere = any(node.tolerance.recovers_elsewhere for node in pipeline.nodes)
        patience = Patience.of(standby=standby, elsewhere=elsewhere, silent=options.silent_seconds)
        cluster = SparkCluster(spark, patience)
        past = next((SparkPastFrames(one.frame, checkpoint) for one in pipeline.frames.values()), None)
        engine = Coordinator(cluster, pipeline, options, identity, checkpoint, past)
        engine.check_hosts()
        query = Query(cluster, engine, outlets)
        with ExitStack() as undo:
            # First of all, so that no older driver commits a batch after Spark has looked for the last one.
            engine.take_lease()
            undo.callback(engine.lease.release)
            engine.check_unrecorded()
            engine.receivers.open(recorded_lanes(engine.store))
            undo.callback(engine.receivers.close)
            query.attach(first._spark_query(spark, pipeline, options, query))
            undo.pop_all()
        return query

    def check(self, batch_bytes: int = DEFAULT_BATCH_BYTES) -> Pipeline:
        """The pipeline that ``start`` would run; UsageError if it cannot work. Needs no Spark session."""
        writers = [self, *self.others]
        _refuse_twins([writer.stateful.name for writer in writers])
        for writer in writers:
            writer._check_options()
        sinks = [(writer.stateful, writer._sink_mode()) for writer in writers]
        return assemble(sinks, batch_bytes=batch_bytes, rewrites=self.rewrites)

    def _check_options(self) -> None:
        """Only a sink made by ``format`` takes options that are not the query's own."""
        unknown = sorted(self.options.keys() - OWN_OPTIONS)
        if unknown and (self.sink is None or self.deliver is not None):
            raise UsageError(
                f"Nobody takes the option {unknown[0]!r}.",
                remedy=f"Options of a query are {', '.join(sorted(OWN_OPTIONS))}.",
                option=unknown[0],
            )
        if self.options.get("bounds", "false").lower() not in ("true", "false"):
            raise UsageError(f"Option 'bounds' is {self.options['bounds']!r}, not True or False.", option="bounds")

    def _sink_mode(self) -> str | None:
        """The mode, if anything takes what comes out."""
        return self.mode if self.deliver is not None or self.sink is not None else None

    def _outlet(self) -> Outlet | None:
        deliver = self._delivery()
        if deliver is None:
            return None
        bounds = self.options.get("bounds", "false").lower() == "true"
        return Outlet(self.stateful.name, self.mode, deliver, bounds)

    def _run_options(self) -> RunOptions:
        own = {
            "batch_bytes": ("batchBytes", int),
            "segments": ("segments", str),
            "host_grace_seconds": ("hostGraceSeconds", float),
            "silent_seconds": ("silentSeconds", float),
            "lease_seconds": ("leaseSeconds", float),
            "store_wait_seconds": ("storeWaitSeconds", float),
            "quarantine_bytes": ("quarantineBytes", int),
            "max_replay_seconds": ("maxReplaySeconds", float),
            "max_kept_bytes": ("maxKeptBytes", int),
        }
        given = {name: self._number(key, kind) for name, (key, kind) in own.items() if key in self.options}
        checkpoint = self.options.get("checkpointLocation") or tempfile.mkdtemp(prefix="afspark-checkpoint-")
        if not urlparse(checkpoint).scheme:
            checkpoint = str(Path(checkpoint).absolute())
        return RunOptions(checkpoint=checkpoint, faults=self.faults, throttle=self._throttle(), **given)

    def _throttle(self) -> Throttle | None:
        """``storeLatencySeconds`` and ``storeBytesPerSecond`` make the backup store slower, for experiments."""
        if not {"storeLatencySeconds", "storeBytesPerSecond"} & self.options.keys():
            return None
        latency = self._number("storeLatencySeconds", float) if "storeLatencySeconds" in self.options else 0.0
        rate = self._number("storeBytesPerSecond", float) if "storeBytesPerSecond" in self.options else math.inf
        return Throttle(latency_seconds=latency, bytes_per_second=rate)

    def _number(self, key: str, kind: Callable[[str], Any]) -> Any:
        try:
            return kind(self.options[key])
        except ValueError:
            raise UsageError(
                f"Option {key!r} is {self.options[key]!r}, not a number.",
                remedy="Give one without a unit: 10, not '10s'.",
                option=key,
            ) from None

    def _delivery(self) -> Deliver | None:
        if self.deliver is not None or self.sink is None:
            return self.deliver
        options = {key: value for key, value in self.options.items() if key not in OWN_OPTIONS}
        sink, path = self.sink, self.path

        def save(frame: DataFrame, batch: int) -> None:
            frame.write.format(sink).mode("append").options(**options).save(path)

        return save

    def _spark_query(self, spark: SparkSession, pipeline: Pipeline, options: RunOptions, query: Query) -> Any:
        local = urlparse(options.checkpoint).scheme in ("", "file")
        key, manager = LOCAL_FILE_MANAGER
        before = spark.conf.get(key, None)
        if local and before is None:
            spark.conf.set(key, manager)
        try:
            writer = _frame(spark, pipeline, options).writeStream.foreachBatch(query.run_batch)
            writer = writer.option("checkpointLocation", options.checkpoint).trigger(
                **(self.triggers or {"processingTime": "0 seconds"})
            )
            return (writer.queryName(self.query_name) if self.query_name else writer).start()
        finally:
            if local and before is None:
                spark.conf.unset(key)


def _frame(spark: SparkSession, pipeline: Pipeline, options: RunOptions) -> DataFrame:
    """What Spark streams: the user's DataFrame, or only the offsets of sources that workers read themselves."""
    frames = []
    for name, source in pipeline.sources.items():
        if isinstance(source, StreamFrame):
            return source.frame
        spark.dataSource.register(OffsetSource)
        frames.append(
            spark.readStream.format(FORMAT)
            .option("source", json.dumps(source.to_json()))
            .option("module", type(source).__module__)
            .option("folder", source_folder(name))
            .option("checkpoint", options.checkpoint)
            .option("batch_bytes", str(options.batch_bytes))
            .option("wait_seconds", str(options.store_wait_seconds))
            .load()
        )
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def _refuse_twins(names: list[str]) -> None:
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise UsageError(
            f"Two sinks are called {twins[0]!r}.",
            remedy="One sink per operator; write to several places in its foreachBatch.",
        )
