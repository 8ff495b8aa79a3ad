"""How a user builds a pipeline: ``read_stream(spark)…apply(operator)…writeStream…start()``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from afspark.errors import UsageError
from afspark.model.operator import Operator, Transform
from afspark.policies import MiniBatch, Tolerance
from afspark.runtime.engine import Engine
from afspark.runtime.faults import FaultPlan
from afspark.runtime.pipeline import Pipeline, RunOptions
from afspark.runtime.placement import check_slots, settled_slots
from afspark.runtime.plansource import FORMAT, PlanSource
from afspark.runtime.query import Deliver, Query
from afspark.runtime.session import LOCAL_FILE_MANAGER, check_session
from afspark.runtime.sources import Packets, ParquetFiles, Source, TextFiles, ZipfWords
from afspark.store import claim, open_store


@dataclass(frozen=True)
class StreamReader:
    """Where a stream comes from. Files and generated input are read by the workers themselves, as Arrow."""

    spark: SparkSession

    def text(self, path: str, *, blocks: bool = False) -> Stream:
        """Lines of all text files below ``path`` (column ``value``); ``blocks``: whole blocks of lines a row."""
        return self.source(TextFiles(path, blocks=blocks))

    def parquet(self, path: str, columns: tuple[str, ...] | None = None) -> Stream:
        """Rows of all Parquet files below ``path``."""
        return self.source(ParquetFiles(path, columns=columns))

    def words(self, size: int, seed: int = 0) -> Stream:
        """``size`` bytes of generated text whose words follow Zipf's law; costs no disk."""
        return self.source(ZipfWords(size, seed=seed))

    def packets(self, rows: int, seed: int = 0) -> Stream:
        """``rows`` generated packets (``src``, ``dst``, ``bytes``) with skewed pairs; costs no disk."""
        return self.source(Packets(rows, seed=seed))

    def source(self, source: Source) -> Stream:
        """Any source that plans chunks."""
        return Stream(self.spark, source)

    def frame(self, frame: DataFrame) -> Stream:
        """Any Spark streaming DataFrame: Kafka, files, rate …"""
        if not frame.isStreaming:
            raise UsageError("This DataFrame does not stream.", remedy="Make it with spark.readStream.")
        return Stream(self.spark, frame)


def read_stream(spark: SparkSession) -> StreamReader:
    """The beginning of every pipeline."""
    check_session(spark)
    return StreamReader(spark)


@dataclass(frozen=True)
class Stream:
    """A stream of Arrow batches before it meets state."""

    spark: SparkSession
    origin: Source | DataFrame
    transforms: tuple[Transform, ...] = ()

    def map(self, transform: Transform) -> Stream:
        """Adds a stateless step, fused into the read: a RecordBatch in, a RecordBatch or None out."""
        return replace(self, transforms=(*self.transforms, transform))

    def apply(
        self,
        operator: Operator,
        *,
        workers: int = 2,
        tolerance: Tolerance | None = None,
        keyed: bool | None = None,
        name: str | None = None,
    ) -> StatefulStream:
        """Adds the operator with resident state.

        ``keyed=None`` lets the output decide: rows that change with every batch need each key in one place,
        all else runs on local shares without any exchange.
        """
        schema = None
        if not self.transforms:
            origin = self.origin
            schema = to_arrow_schema(origin.schema) if isinstance(origin, DataFrame) else origin.schema()
        operator.check(schema)
        return StatefulStream(
            self, operator, workers, tolerance or MiniBatch(), keyed, name or type(operator).__name__.lower()
        )


@dataclass(frozen=True)
class StatefulStream:
    """A stream with its operator; only an output is missing."""

    stream: Stream
    operator: Operator
    workers: int
    tolerance: Tolerance
    keyed: bool | None
    name: str

    @property
    def writeStream(self) -> StreamWriter:
        return StreamWriter(self)


@dataclass(frozen=True)
class StreamWriter:
    """How and when results leave the pipeline. Every method gives a new writer; ``start`` runs it."""

    stateful: StatefulStream
    mode: str = "complete"
    deliver: Deliver | None = None
    sink: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    triggers: Mapping[str, Any] = field(default_factory=dict)
    query_name: str | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)

    def outputMode(self, mode: str) -> StreamWriter:
        """``update``: the rows each batch changed; ``complete``: all results after each batch."""
        if mode not in ("update", "complete"):
            raise UsageError(f"Output mode {mode!r} is not known.", remedy="Use 'update' or 'complete'.")
        return replace(self, mode=mode)

    def foreachBatch(self, deliver: Callable[[DataFrame, int], None]) -> StreamWriter:
        """Calls ``deliver(frame, batch)`` after each batch. Called again with the same batch after a crash."""
        return replace(self, deliver=deliver)

    def format(self, sink: str) -> StreamWriter:
        """A Spark batch sink (``parquet``, ``noop``, ``console`` …), written in append mode for each batch."""
        return replace(self, sink=sink)

    def option(self, key: str, value: object) -> StreamWriter:
        """``checkpointLocation``, ``batchBytes``, ``segments``, ``hostGraceSeconds``, or one for the sink."""
        return replace(self, options={**self.options, key: str(value)})

    def trigger(self, **trigger: Any) -> StreamWriter:
        """Spark's triggers: ``availableNow=True`` or ``processingTime='10 seconds'``."""
        return replace(self, triggers=trigger)

    def queryName(self, name: str) -> StreamWriter:
        return replace(self, query_name=name)

    def inject(self, faults: FaultPlan) -> StreamWriter:
        """Lets failures strike while the query runs."""
        return replace(self, faults=faults)

    def start(self, path: str | None = None) -> Query:
        """Checks everything that can be checked, then starts."""
        stateful, spark = self.stateful, self.stateful.stream.spark
        check_session(spark)
        deliver = self._delivery(path)
        emit = deliver is not None and self.mode == "update"
        options = self._run_options(emit)
        origin = stateful.stream.origin
        if isinstance(origin, Source):
            origin = origin.sized_for(options.batch_bytes // (2 * max(stateful.workers, 1)))
        pipeline = Pipeline(
            source=origin,
            operator=stateful.operator,
            transforms=stateful.stream.transforms,
            workers=stateful.workers,
            tolerance=stateful.tolerance,
            keyed=emit if stateful.keyed is None else stateful.keyed,
            name=stateful.name,
        )
        if isinstance(pipeline.source, Source):
            pipeline.source.validate()
        check_slots(settled_slots(spark.sparkContext, pipeline.workers), pipeline.workers)
        checkpoint = open_store(options.checkpoint)
        checkpoint.check_writable()
        identity = claim(checkpoint.below("afspark"), pipeline.fingerprint(), pipeline.settings())
        query = Query(spark, Engine(spark.sparkContext, pipeline, options, identity, checkpoint), deliver, self.mode)
        query.attach(self._spark_query(spark, pipeline, options, query))
        return query

    def _run_options(self, emit: bool) -> RunOptions:
        own = {
            "batch_bytes": ("batchBytes", int),
            "segments": ("segments", str),
            "host_grace_seconds": ("hostGraceSeconds", float),
        }
        given = {name: self._number(key, kind) for name, (key, kind) in own.items() if key in self.options}
        checkpoint = self.options.get("checkpointLocation") or tempfile.mkdtemp(prefix="afspark-checkpoint-")
        if not urlparse(checkpoint).scheme:
            checkpoint = str(Path(checkpoint).absolute())
        return RunOptions(checkpoint=checkpoint, emit=emit, faults=self.faults, **given)

    def _number(self, key: str, kind: Callable[[str], Any]) -> Any:
        try:
            return kind(self.options[key])
        except ValueError:
            raise UsageError(f"Option {key!r} is {self.options[key]!r}, not a number.", option=key) from None

    def _delivery(self, path: str | None) -> Deliver | None:
        if self.deliver is not None or self.sink is None:
            return self.deliver
        reserved = {"checkpointLocation", "batchBytes", "segments", "hostGraceSeconds"}
        options = {key: value for key, value in self.options.items() if key not in reserved}
        sink = self.sink

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
            writer = self._frame(spark, pipeline, options).writeStream.foreachBatch(query.run_batch)
            writer = writer.option("checkpointLocation", options.checkpoint).trigger(
                **(self.triggers or {"processingTime": "0 seconds"})
            )
            return (writer.queryName(self.query_name) if self.query_name else writer).start()
        finally:
            if local and before is None:
                spark.conf.unset(key)

    def _frame(self, spark: SparkSession, pipeline: Pipeline, options: RunOptions) -> DataFrame:
        if isinstance(pipeline.source, DataFrame):
            return pipeline.source
        spark.dataSource.register(PlanSource)
        return (
            spark.readStream.format(FORMAT)
            .option("source", json.dumps(pipeline.source.to_json()))
            .option("checkpoint", options.checkpoint)
            .option("batch_bytes", str(options.batch_bytes))
            .load()
        )
