"""How results leave a pipeline, and how it is started."""

from __future__ import annotations

import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession

from afspark.api.arguments import check_function
from afspark.api.assembly import assemble
from afspark.api.planned_start import end_if_planned
from afspark.api.query import Deliver, Outlet, Query
from afspark.api.sinks import Sink, row_by_row
from afspark.api.spark_part import spark_part
from afspark.api.stream import StatefulStream
from afspark.api.temporary_checkpoint import is_temporary, new_temporary, remove_at_exit
from afspark.api.writer_options import check_options, for_sink, own_name, run_settings, text_of, throttle_of
from afspark.cluster.spark.anchors import registered_slots
from afspark.cluster.spark.offset_source import FORMAT, OffsetSource
from afspark.cluster.spark.past_frames import SparkPastFrames
from afspark.cluster.spark.session import LOCAL_FILE_MANAGER, check_session
from afspark.cluster.spark.source_formats import register_source
from afspark.cluster.spark.spark_cluster import SparkCluster
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.placement import check_slots
from afspark.coordinator.receivers.receivers import recorded_lanes
from afspark.coordinator.rescaling.rescaling import rescaled
from afspark.coordinator.run_options import DEFAULT_BATCH_BYTES, RunOptions
from afspark.coordinator.savepoint_copying import start_from_savepoint
from afspark.errors import UsageError
from afspark.graph.node import check_transform
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import Rewrite
from afspark.graph.stream_frame import StreamFrame
from afspark.policies.parameters import shown
from afspark.protocol.fault_plan import FaultPlan
from afspark.sources import Source
from afspark.sources.file_source import InputAwaited
from afspark.store import claim, open_store
from afspark.store.address_schemes import joined, redact
from afspark.store.checkpoint_place import settle_place
from afspark.store.naming import FOLDER, source_folder

logger = logging.getLogger(__name__)

MODES = ("update", "complete", "append")
TRIGGERS = {"availableNow", "once", "processingTime"}


@dataclass(frozen=True)
class StreamWriter:
    """How and when results leave the pipeline. Every method gives a new writer; ``start`` runs it."""

    stateful: StatefulStream
    mode: str = "complete"
    deliver: Deliver | None = None
    sink: str | None = None
    path: str | None = None
    table: str | None = None
    columns: tuple[str, ...] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    triggers: Mapping[str, Any] = field(default_factory=dict)
    query_name: str | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    others: tuple[StreamWriter, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()

    def outputMode(self, mode: str) -> StreamWriter:
        """``update``: the rows each batch changed; ``complete``: all results after each batch; ``append``: the
        windows each batch closed, or without windows the items it sent.
        """
        if not _is_text(mode) or mode.lower() not in MODES:
            raise UsageError(f"Output mode {mode!r} is not known.", remedy="Use 'update', 'complete' or 'append'.")
        return replace(self, mode=mode.lower())

    def foreachBatch(self, deliver: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Calls ``deliver(frame, batch)`` after each batch. Called again with the same batch after a crash."""
        check_function(deliver, "foreachBatch", "Give it a function of a DataFrame and the number of its batch.")
        return replace(self, deliver=deliver)

    def foreach(self, taker: Any) -> StreamWriter:
        """Hands every row, where it is, to a function, or to an object with ``process(row)`` and maybe
        ``open(partition, batch)`` and ``close(error)``, as in Spark.
        """
        return replace(self, deliver=row_by_row(taker))

    def format(self, sink: str) -> StreamWriter:
        """``console``, ``memory`` (a table named by ``queryName``), or a batch sink of Spark's (``parquet``,
        ``noop`` …), to which every batch is appended.
        """
        if not _is_text(sink):
            raise UsageError(f"A format is a name, not {sink!r}.", remedy="Write format('parquet').")
        return replace(self, sink=sink)

    def partitionBy(self, *columns: str | Sequence[str]) -> StreamWriter:
        """Files and tables have a folder for each value of these columns."""
        names = [name for one in columns for name in ([one] if isinstance(one, str) else one)]
        if not names or not all(isinstance(name, str) for name in names):
            raise UsageError(f"partitionBy is given {columns!r}.", remedy="Name columns: partitionBy('day').")
        return replace(self, columns=tuple(names))

    def option(self, key: str, value: object) -> StreamWriter:
        """Capitals in names do not matter, as with Spark's own options.

        ``checkpointLocation``, ``batchBytes``, ``segments``, ``hostGraceSeconds``, ``silentSeconds`` (how long an
        executor may owe an answer before its host counts as away), ``leaseSeconds`` (how long a driver on another
        machine may be silent before it counts as dead), ``storeWaitSeconds`` (how long the checkpoint's place may be
        gone, or hang, before the query stops), ``flushSeconds`` (how long a stop may take to make durable what is not),
        ``bounds`` (a column with the bound realised so far),
        ``quarantineBytes`` (of bad items, for each operator), ``maxReplaySeconds`` (of processing that a lost worker
        may have to repeat; 0: every batch waits for the store), ``maxKeptBytes`` (that a worker keeps for others until
        a durable commit record covers them), ``savepoint`` (where a savepoint is from which the query starts; its
        checkpoint has to be empty), ``discardState`` (operators, separated by commas, whose state may be given up if a
        changed pipeline cannot keep it), or one for the sink.
        """
        name = own_name(key)
        return replace(self, given={**self.given, name: text_of(name, value)})

    def options(self, **options: object) -> StreamWriter:
        """Several options at once."""
        writer = self
        for key, value in options.items():
            writer = writer.option(key, value)
        return writer

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Spark's triggers: ``availableNow=True``, ``once=True`` or ``processingTime='10 seconds'``."""
        fits = {name: _is_text(value) if name == "processingTime" else value is True for name, value in trigger.items()}
        if len(trigger) != 1 or not trigger.keys() <= TRIGGERS or not all(fits.values()):
            given = ", ".join(f"{name}={value!r}" for name, value in trigger.items())
            raise UsageError(
                f"There is no trigger({given}).",
                remedy="Write trigger(availableNow=True) or trigger(processingTime='10 seconds').",
            )
        return replace(self, triggers=trigger)

    def queryName(self, name: str) -> StreamWriter:
        """How Spark lists the query, and the table of the memory sink."""
        if not _is_text(name):
            raise UsageError(f"The name of a query is a text, not {name!r}.", remedy="Write queryName('counts').")
        return replace(self, query_name=name)

    def rewritten(self, rewrites: tuple[Rewrite, ...]) -> StreamWriter:
        """What runs is what these rewrites make of the pipeline in the end; for experiments."""
        return replace(self, rewrites=rewrites)

    def inject(self, faults: FaultPlan) -> StreamWriter:
        """Makes failures happen while the query runs, as the plan says."""
        return replace(self, faults=faults)

    def also(self, other: StreamWriter) -> StreamWriter:
        """A second sink in the same query. Checkpoint, trigger and other run options are those of the first."""
        if not isinstance(other, StreamWriter):
            raise UsageError(f"{shown(other)} is no sink.", remedy="Write also(other.writeStream.format(…)).")
        return replace(self, others=(*self.others, other))

    def toTable(
        self,
        tableName: str,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        *,
        takeover: bool = False,
        **options: object,
    ) -> Query:
        """Starts a query whose rows are appended to a table, which is made with the first of them."""
        if not _is_text(tableName):
            raise UsageError(f"The name of a table is a text, not {tableName!r}.", remedy="Write toTable('counts').")
        writer = replace(self, table=tableName)._with(format, outputMode, partitionBy, queryName, options)
        return writer.start(takeover=takeover)

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        queryName: str | None = None,
        *,
        takeover: bool = False,
        **options: object,
    ) -> Query:
        """Checks everything that can be checked, then starts; with what else Spark's own `start` may be given.

        `AnotherDriver` if one that lives runs on this checkpoint; with ``takeover`` that one has to stop instead.
        """
        first = replace(self, path=path or self.path)._with(format, outputMode, partitionBy, queryName, options)
        return first._started(takeover=takeover)

    def _with(
        self,
        sink: str | None,
        mode: str | None,
        columns: str | Sequence[str] | None,
        name: str | None,
        options: Mapping[str, object],
    ) -> StreamWriter:
        """The writer with what may be left to the call that starts it."""
        writer = self if sink is None else self.format(sink)
        writer = writer if mode is None else writer.outputMode(mode)
        writer = writer if columns is None else writer.partitionBy(columns)
        writer = writer if name is None else writer.queryName(name)
        return writer.options(**options)

    def _started(self, *, takeover: bool) -> Query:
        end_if_planned(self)
        spark = self.stateful.spark
        if spark is None:
            raise UsageError("A pipeline of a test has no Spark session.", remedy="Return it to afspark.testing.run.")
        check_session(spark)
        writers = [self, *self.others]
        kept = int(spark.conf.get("spark.sql.streaming.minBatchesToRetain", "100") or 100)
        options = replace(self._run_options(spark), takeover=takeover, offsets_kept=kept)
        pipeline = self.check(options.batch_bytes)
        for source in pipeline.sources.values():
            if isinstance(source, Source):
                _validate(source)
        workers = max(node.workers for node in pipeline.nodes)
        receivers = sum(
            min(source.receivers, source.lanes) for source in pipeline.pushed.values() if source.where == "executors"
        )
        check_slots(registered_slots(spark.sparkContext, workers + receivers), workers, receivers)
        # Not before all this: of a query that is refused no folder stays behind, and nothing is said of one.
        options = replace(options, checkpoint=options.checkpoint or new_temporary())
        checkpoint = open_store(options.checkpoint)
        checkpoint.check_writable()
        if "savepoint" in self.given:
            start_from_savepoint(open_store(self.given["savepoint"]), checkpoint, pipeline, options.discard_state)
        identity = claim(checkpoint.below(FOLDER), pipeline.fingerprint(), pipeline.settings(), options.discard_state)
        temporary = is_temporary(options.checkpoint)
        identity = settle_place(checkpoint, options.checkpoint, identity, temporary=temporary)
        outlets = [outlet for writer in writers if (outlet := writer._outlet()) is not None]
        standby = any(node.tolerance.has_secondaries for node in pipeline.nodes)
        elsewhere = any(node.tolerance.recovers_elsewhere for node in pipeline.nodes)
        cluster = SparkCluster(spark, options.silent_seconds)
        cluster.heed(standby=standby, elsewhere=elsewhere)
        place, copies = spark_part(spark, pipeline, checkpoint, options.checkpoint)
        whole = checkpoint if copies is None else copies.checkpoint
        past = next((SparkPastFrames(one.frame, whole) for one in pipeline.frames.values()), None)

        def take_up(engine: Coordinator) -> None:
            """What the driver before has left is known once it can do nothing more."""
            if copies is not None:
                copies.take_up(engine.checkpoint, lambda: engine.log.epoch)

        pipeline = rescaled(cluster, pipeline, options, identity, whole, past, take_up)
        engine = Coordinator(cluster, pipeline, options, identity, whole, past)
        engine.check_hosts()
        query = Query(cluster, engine, outlets, copies)
        with ExitStack() as undo:
            # First of all, so that no older driver commits a batch after Spark has looked for the last one.
            engine.take_lease()
            undo.callback(engine.lease.release)
            take_up(engine)
            engine.check_unrecorded()
            engine.receivers.open(recorded_lanes(engine.store))
            undo.callback(engine.receivers.close)
            started = self._spark_query(spark, pipeline, options, query, place)
            query.attach(started, _described(pipeline), ", ".join(one._sink().told for one in writers if one._outlet()))
            undo.pop_all()
        if temporary:
            remove_at_exit(query, options.segments, identity.query_id)
        return query

    def check(self, batch_bytes: int = DEFAULT_BATCH_BYTES) -> Pipeline:
        """The pipeline that ``start`` would run; UsageError if it cannot work. Needs no Spark session."""
        writers = [self, *self.others]
        _refuse_twins([writer.stateful.name for writer in writers])
        for writer in writers:
            sink = writer._sink()
            check_options(writer.given, sink.takes_options)
            sink.check()
        sinks = [(writer.stateful, writer.mode if writer._sink().delivery() else None) for writer in writers]
        pipeline = assemble(sinks, batch_bytes=batch_bytes, rewrites=self.rewrites)
        for transform in (one for node in pipeline.nodes for edge in node.inputs for one in edge.transforms):
            check_transform(transform)
        return pipeline

    def _sink(self) -> Sink:
        options = for_sink(self.given)
        # As in Spark, the path may be an option too; for a table that is where its files are.
        given = "" if self.table is not None else options.pop("path", "")
        return Sink(
            mode=self.mode,
            format=self.sink,
            path=self.path or given or None,
            table=self.table,
            columns=self.columns,
            deliver=self.deliver,
            query_name=self.query_name,
            options=options,
        )

    def _outlet(self) -> Outlet | None:
        deliver = self._sink().delivery()
        if deliver is None:
            return None
        bounds = self.given.get("bounds", "false").lower() == "true"
        return Outlet(self.stateful.name, self.mode, deliver, bounds)

    def _run_options(self, spark: SparkSession | None = None) -> RunOptions:
        settings = run_settings(self.given)
        return RunOptions(
            checkpoint=self._checkpoint(spark), faults=self.faults, throttle=throttle_of(self.given), **settings
        )

    def _checkpoint(self, spark: SparkSession | None) -> str:
        """The place given, or a folder below Spark's setting for all queries; "" if there is neither."""
        checkpoint = self.given.get("checkpointLocation", "")
        common = spark.conf.get("spark.sql.streaming.checkpointLocation", None) if spark is not None else None
        if not checkpoint and common:
            checkpoint = joined(common, self.query_name or str(uuid.uuid4()))
        return checkpoint if not checkpoint or urlparse(checkpoint).scheme else str(Path(checkpoint).absolute())

    def _spark_query(
        self, spark: SparkSession, pipeline: Pipeline, options: RunOptions, query: Query, place: str
    ) -> Any:
        """Starts Spark's query, whose part of the checkpoint is in ``place``."""
        local = urlparse(place).scheme in ("", "file")
        key, manager = LOCAL_FILE_MANAGER
        before = spark.conf.get(key, None)
        if local and before is None:
            spark.conf.set(key, manager)

        def run_batch(frame: DataFrame, batch: int) -> None:
            query.run_batch(frame, batch)
            query.tell_spark()

        try:
            writer = _frame(spark, pipeline, options).writeStream.foreachBatch(run_batch)
            writer = writer.option("checkpointLocation", place).trigger(
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
        register_source(spark, OffsetSource)
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


def _validate(source: Source) -> None:
    """UsageError if the source cannot be read; a place without files is a stream that has not begun."""
    try:
        source.validate()
    except InputAwaited as awaited:
        logger.warning("%s The query waits for the first one.", awaited.message)


def _described(pipeline: Pipeline) -> str:
    """What a query reads, for people."""
    given = [
        f"{source.kind}[{redact(getattr(source, 'path', ''))}]" if isinstance(source, Source) else "DataFrame"
        for source in pipeline.sources.values()
    ]
    return ", ".join(given)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _refuse_twins(names: list[str]) -> None:
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise UsageError(
            f"Two sinks are called {twins[0]!r}.",
            remedy="One sink per operator; write to several places in its foreachBatch.",
        )
