"""How a user builds a pipeline: ``read_stream(spark)…apply(operator)…writeStream…start()``.

Streams are values: each step gives a new one, and one stream can be used several times. The graph that a writer
reaches becomes one query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from afspark.cluster.spark.session import check_session
from afspark.errors import UsageError
from afspark.model.onbad import SKIP, OnBad, check_on_bad
from afspark.model.operator import Operator, Transform
from afspark.model.windows import Window
from afspark.policies import MiniBatch, Tolerance
from afspark.protocol.bad_items import BAD_LIMIT
from afspark.sources import (
    Clicks,
    CsvFiles,
    Higgs,
    LibsvmFiles,
    Packets,
    ParquetFiles,
    PcapFiles,
    Pushed,
    Source,
    TextFiles,
    Visits,
    ZipfWords,
)

if TYPE_CHECKING:
    from afspark.api.writer import StreamWriter


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

    def pcap(self, path: str, *, on_bad: str = SKIP) -> Stream:
        """Packets of all captures below ``path`` (``src``, ``dst``, ``bytes``, ``second``, ``protocol``); what is
        damaged is a row of nulls, or with ``on_bad="stop"`` an error.
        """
        return self.source(PcapFiles(path, on_bad=on_bad))

    def visits(self, rows: int, stream: int = 0, seed: int = 0) -> Stream:
        """``rows`` generated packets (``dst``, ``second``, ``bytes``) of one of two streams that overlap; synthetic."""
        return self.source(Visits(rows, stream=stream, seed=seed))

    def libsvm(self, path: str, *, on_bad: str = SKIP) -> Stream:
        """Labelled rows of all files below ``path`` in the format of libsvm (``label``, ``index``, ``value``)."""
        return self.source(LibsvmFiles(path, on_bad=on_bad))

    def csv(self, path: str, *, label: str = "label", **settings: Any) -> Stream:
        """Labelled rows of all CSV files below ``path``; settings as in `CsvFiles`."""
        return self.source(CsvFiles(path, label=label, **settings))

    def clicks(self, rows: int, seed: int = 0) -> Stream:
        """``rows`` generated clicks: ``label`` and ``features``, a list of 11 categorical values; synthetic."""
        return self.source(Clicks(rows, seed=seed))

    def higgs(self, rows: int, seed: int = 0) -> Stream:
        """``rows`` generated collisions: ``label`` and ``features``, a list of 28 numbers; synthetic."""
        return self.source(Higgs(rows, seed=seed))

    def pushed(self, schema: pa.Schema, **settings: Any) -> Stream:
        """Items of that schema that producers push to an Arrow Flight endpoint; settings as in `Pushed`.

        ``query.receivers`` says where it listens.
        """
        return self.source(Pushed.of(schema, **settings))

    def source(self, source: Source) -> Stream:
        """Any source that plans chunks."""
        return Stream(self.spark, (Inflow(source),))

    def frame(self, frame: DataFrame) -> Stream:
        """Any Spark streaming DataFrame: Kafka, files, rate …"""
        if not frame.isStreaming:
            raise UsageError("This DataFrame does not stream.", remedy="Make it with spark.readStream.")
        return Stream(self.spark, (Inflow(frame),))


def read_stream(spark: SparkSession) -> StreamReader:
    """The beginning of every pipeline."""
    check_session(spark)
    return StreamReader(spark)


@dataclass(frozen=True, eq=False)
class Inflow:
    """Where items of a stream come from, and the transforms they have passed."""

    origin: Source | DataFrame | StatefulStream
    transforms: tuple[Transform, ...] = ()

    def schema(self) -> pa.Schema | None:
        """The columns, where they are known before anything runs."""
        if self.transforms or isinstance(self.origin, StatefulStream):
            return None
        return to_arrow_schema(self.origin.schema) if isinstance(self.origin, DataFrame) else self.origin.schema()


@dataclass(frozen=True, eq=False)
class Stream:
    """Items on their way to an operator, as Arrow batches. ``spark``: None in a test that runs without it."""

    spark: SparkSession | None
    inflows: tuple[Inflow, ...]

    def map(self, transform: Transform) -> Stream:
        """Adds a transform, which workers run while they read: a RecordBatch in, a RecordBatch or None out."""
        return replace(self, inflows=tuple(Inflow(one.origin, (*one.transforms, transform)) for one in self.inflows))

    def union(self, *others: Stream | StatefulStream) -> Stream:
        """Items of several streams for one operator, which tells them apart by ``context.input``."""
        streams = [other.stream() if isinstance(other, StatefulStream) else other for other in others]
        return replace(self, inflows=(*self.inflows, *(one for stream in streams for one in stream.inflows)))

    def apply(  # noqa: PLR0913 - each is a choice of the user's, most with a default
        self,
        operator: Operator,
        *,
        name: str | None = None,
        workers: int = 2,
        tolerance: Tolerance | None = None,
        keyed: bool | None = None,
        window: Window | None = None,
        weight: float | None = None,
        feeds_back: Sequence[str] = (),
        on_bad: OnBad | None = None,
        bad_limit: int = BAD_LIMIT,
    ) -> StatefulStream:
        """Adds an operator with resident state.

        ``keyed=None`` lets the pipeline decide: rows that change with every batch and items of other operators
        need each key in one place; all else runs on local shares without any exchange. ``weight`` is the
        operator's part of the error budget (default: equal parts). ``feeds_back`` names the operators upstream
        that it may send feedback to.

        ``on_bad`` decides about items that the operator, or a transform before it, raises on: "skip" leaves them out,
        counts them and keeps them in quarantine, "stop" ends the query and names the first one. Default: the
        operator's own choice, or that of the source: pushed items are skipped, others stop the query. The query stops
        all the same once a worker has found more than ``bad_limit`` of them in a batch one by one.
        """
        for inflow in self.inflows:
            schema = inflow.schema()
            operator.check(schema)
            if window is not None:
                window.check(schema)
        return StatefulStream(
            inputs=self,
            operator=operator,
            name=name or type(operator).__name__.lower(),
            workers=workers,
            tolerance=tolerance or MiniBatch(),
            keyed=keyed,
            window=window,
            weight=weight,
            feeds_back=tuple(feeds_back),
            on_bad=on_bad if on_bad is None else check_on_bad(on_bad),
            bad_limit=bad_limit,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StatefulStream:
    """An operator with its inputs; what it sends is a stream again."""

    inputs: Stream
    operator: Operator
    name: str
    workers: int = 2
    tolerance: Tolerance = field(default_factory=MiniBatch)
    keyed: bool | None = None
    window: Window | None = None
    weight: float | None = None
    feeds_back: tuple[str, ...] = ()
    on_bad: OnBad | None = None
    bad_limit: int = BAD_LIMIT

    @property
    def spark(self) -> SparkSession | None:
        return self.inputs.spark

    def stream(self) -> Stream:
        """What the operator sends."""
        return Stream(self.spark, (Inflow(self),))

    def map(self, transform: Transform) -> Stream:
        """A transform of what the operator sends."""
        return self.stream().map(transform)

    def union(self, *others: Stream | StatefulStream) -> Stream:
        return self.stream().union(*others)

    def apply(  # noqa: PLR0913 - each is a choice of the user's, most with a default
        self,
        operator: Operator,
        *,
        name: str | None = None,
        workers: int = 2,
        tolerance: Tolerance | None = None,
        keyed: bool | None = None,
        window: Window | None = None,
        weight: float | None = None,
        feeds_back: Sequence[str] = (),
        on_bad: OnBad | None = None,
        bad_limit: int = BAD_LIMIT,
    ) -> StatefulStream:
        """Another operator that reads what this one sends; see `Stream.apply`."""
        return self.stream().apply(
            operator,
            name=name,
            workers=workers,
            tolerance=tolerance,
            keyed=keyed,
            window=window,
            weight=weight,
            feeds_back=feeds_back,
            on_bad=on_bad,
            bad_limit=bad_limit,
        )

    @property
    def writeStream(self) -> StreamWriter:
        from afspark.api.writer import StreamWriter

        return StreamWriter(self)
