"""How a user builds a pipeline: ``read_stream(spark)…apply(operator)…writeStream…start()``.

Streams are values: each step gives a new one, and one stream can be used several times. The graph that a writer
reaches becomes one query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from afspark.api.arguments import check_function, check_operator, check_settings, check_tolerance, check_window
from afspark.cluster.spark.frame_facts import frame_facts
from afspark.cluster.spark.script_errors import show_errors_briefly
from afspark.cluster.spark.session import check_session
from afspark.errors import UsageError
from afspark.graph.stream_frame import StreamFrame, why_not_replayable
from afspark.model.onbad import BAD_LIMIT, SKIP, STOP, OnBad, check_on_bad
from afspark.model.operator import Operator, Transform
from afspark.model.windows import Window
from afspark.policies import MiniBatch, Tolerance
from afspark.policies.parameters import shown
from afspark.sources import (
    Clicks,
    CsvFiles,
    Higgs,
    JsonFiles,
    LibsvmFiles,
    MarketEvents,
    Packets,
    ParquetFiles,
    PcapFiles,
    Posts,
    Pushed,
    SmartPlugs,
    Source,
    TextFiles,
    Visits,
    ZipfWords,
)
from afspark.sources.file_source import InputAwaited

if TYPE_CHECKING:
    from afspark.api.writer import StreamWriter


@dataclass(frozen=True)
class StreamReader:
    """Where a stream comes from. Files and generated input are read by the workers themselves, as Arrow."""

    spark: SparkSession

    def text(self, path: str, *, blocks: bool = False, on_bad: str = SKIP) -> Stream:
        """Lines of all text files below ``path`` (column ``value``); ``blocks``: whole blocks of lines a row.

        ``on_bad="stop"``: a line that is not UTF-8 is an error, and not read with U+FFFD in it.
        """
        return self.source(TextFiles(path, blocks=blocks, on_bad=on_bad))

    def parquet(self, path: str, columns: tuple[str, ...] | None = None, *, on_bad: str = STOP) -> Stream:
        """Rows of all Parquet files below ``path``; ``on_bad="skip"``: a column that a file lacks is null there."""
        return self.source(ParquetFiles(path, columns=columns, on_bad=on_bad))

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

    def csv(self, path: str, *, label: str | None = "label", **settings: Any) -> Stream:
        """Rows of all CSV files below ``path``, with a label unless that is None; settings as in `CsvFiles`."""
        return self.source(CsvFiles(path, label=label, **settings))

    def jsonl(self, path: str, **settings: Any) -> Stream:
        """Some fields of the objects in all files of JSON lines below ``path``; settings as in `JsonFiles`."""
        return self.source(JsonFiles(path, **settings))

    def clicks(self, rows: int, seed: int = 0) -> Stream:
        """``rows`` generated clicks: ``label`` and ``features``, a list of 11 categorical values; synthetic."""
        return self.source(Clicks(rows, seed=seed))

    def higgs(self, rows: int, seed: int = 0) -> Stream:
        """``rows`` generated collisions: ``label`` and ``features``, a list of 28 numbers; synthetic."""
        return self.source(Higgs(rows, seed=seed))

    def posts(self, rows: int, seed: int = 0, **settings: Any) -> Stream:
        """``rows`` generated posts (``time``, ``author``, ``text``) in a day of bursts; settings as in `Posts`."""
        return self.source(Posts(rows, seed=seed, **settings))

    def smart_plugs(self, rows: int, seed: int = 0, **settings: Any) -> Stream:
        """``rows`` generated readings of smart plugs in days of bursts; settings as in `SmartPlugs`."""
        return self.source(SmartPlugs(rows, seed=seed, **settings))

    def market_events(self, rows: int, seed: int = 0, **settings: Any) -> Stream:
        """``rows`` generated trades and quotes of stocks in bursts; settings as in `MarketEvents`."""
        return self.source(MarketEvents(rows, seed=seed, **settings))

    def pushed(self, schema: pa.Schema, **settings: Any) -> Stream:
        """Items of that schema that producers push to an Arrow Flight endpoint; settings as in `Pushed`.

        ``query.receivers`` says where it listens.
        """
        return self.source(Pushed.of(schema, **settings))

    def source(self, source: Source) -> Stream:
        """Any source that plans chunks."""
        if not isinstance(source, Source):
            raise UsageError(f"{shown(source)} is no source.", remedy="Make one, such as TextFiles('logs/').")
        return Stream(self.spark, (Inflow(source),))

    def frame(self, frame: DataFrame, *, replayable: bool | None = None) -> Stream:
        """Any Spark streaming DataFrame: Kafka, files, rate …

        Where its batches can be read again, nobody waits for the store, and `BarrierSnapshot` is possible. By default
        Spark's plan decides that, for sources that are known; ``replayable=True`` says that its sources give the rows
        between two offsets again at any time, ``False`` that they do not.
        """
        if not isinstance(frame, DataFrame):
            raise UsageError(f"{shown(frame)} is no DataFrame.", remedy="Give one that spark.readStream has made.")
        if not frame.isStreaming:
            raise UsageError("This DataFrame does not stream.", remedy="Make it with spark.readStream.")
        why = "its reader says so"
        if replayable is not False:
            why = why_not_replayable(frame_facts(frame), lasting=replayable is True)
        if replayable and why:
            raise UsageError(f"This DataFrame cannot be replayed: {why}.", remedy="Leave out replayable=True.")
        return Stream(self.spark, (Inflow(StreamFrame(frame, why)),))


def read_stream(spark: SparkSession) -> StreamReader:
    """The beginning of every pipeline."""
    show_errors_briefly()
    check_session(spark)
    return StreamReader(spark)


@dataclass(frozen=True, eq=False)
class Inflow:
    """Where items of a stream come from, and the transforms they have passed."""

    #: a source, or the operator that sends them
    source: Source | StreamFrame | None = None
    sender: StatefulStream | None = None
    transforms: tuple[Transform, ...] = ()

    def schema(self) -> pa.Schema | None:
        """The columns, where they are known before anything runs."""
        if self.transforms or self.source is None:
            return None
        if isinstance(self.source, StreamFrame):
            return to_arrow_schema(self.source.frame.schema)
        try:
            return self.source.schema()
        except InputAwaited:
            return None


class Items(ABC):
    """Items that a pipeline can go on with: a stream, or what an operator sends."""

    @abstractmethod
    def stream(self) -> Stream:
        """The items as a stream."""

    def map(self, transform: Transform) -> Stream:
        """Adds a transform, which workers run while they read: a RecordBatch in, a RecordBatch or None out."""
        check_function(transform, "map", "Give it a function: a RecordBatch in, one or None out.")
        stream = self.stream()
        inflows = (replace(one, transforms=(*one.transforms, transform)) for one in stream.inflows)
        return replace(stream, inflows=tuple(inflows))

    def union(self, *others: Items) -> Stream:
        """Items of several streams for one operator, which tells them apart by ``context.input``."""
        for other in others:
            if not isinstance(other, Items):
                raise UsageError(f"{shown(other)} is no stream.", remedy="Give union streams and operators.")
        streams = [one.stream() for one in (self, *others)]
        return replace(streams[0], inflows=tuple(inflow for stream in streams for inflow in stream.inflows))

    def apply(  # noqa: PLR0913 - each is a choice of the user's, most with a default
        self,
        operator: Operator,
        *,
        name: str | None = None,
        id: str | None = None,
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

        ``name`` is what it is called (default: its class's name in lower case), ``id`` what its checkpoint knows it by
        (default: the name). Give the id that it had when you change the name, or the class it came from, and it keeps
        its state.

        ``keyed=None`` lets the pipeline decide: rows that change with every batch and items of other operators
        need each key in one place; all else runs on local shares without any exchange. ``weight`` is the
        operator's part of the error budget (default: equal parts). ``feeds_back`` names the operators upstream
        that it may send feedback to.

        ``on_bad`` decides about items that the operator, or a transform before it, raises on: "skip" leaves them out,
        counts them and keeps them in quarantine, "stop" ends the query and names the first one. Default: the
        operator's own choice, or that of the source: pushed items are skipped, others stop the query. The query stops
        all the same once a worker has found more than ``bad_limit`` of them in a batch one by one.
        """
        check_operator(operator)
        if tolerance is not None:
            check_tolerance(tolerance)
        if window is not None:
            check_window(window)
        check_settings(
            name=name, id=id, workers=workers, keyed=keyed, weight=weight, feeds_back=feeds_back, bad_limit=bad_limit
        )
        inputs = self.stream()
        for inflow in inputs.inflows:
            schema = inflow.schema()
            operator.check(schema)
            if window is not None:
                window.check(schema)
        return StatefulStream(
            inputs=inputs,
            operator=operator,
            name=name or type(operator).__name__.lower(),
            id=id,
            workers=workers,
            tolerance=MiniBatch() if tolerance is None else tolerance,
            keyed=keyed,
            window=window,
            weight=weight,
            feeds_back=tuple(feeds_back),
            on_bad=on_bad if on_bad is None else check_on_bad(on_bad),
            bad_limit=bad_limit,
        )


@dataclass(frozen=True, eq=False)
class Stream(Items):
    """Items on their way to an operator, as Arrow batches. ``spark``: None in a test that runs without it."""

    spark: SparkSession | None
    inflows: tuple[Inflow, ...]

    def stream(self) -> Stream:
        return self

    @property
    def writeStream(self) -> NoReturn:
        """Only operators have results to write: a UsageError that says so."""
        raise UsageError(
            "A stream has no results that could be written.", remedy="Give it an operator: apply(Count()).writeStream."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class StatefulStream(Items):
    """An operator with its inputs; what it sends is a stream again."""

    inputs: Stream
    operator: Operator
    name: str
    #: what its checkpoint knows it by; None: its name
    id: str | None = None
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
        """The session that it runs in; None in a test without one."""
        return self.inputs.spark

    def stream(self) -> Stream:
        """What the operator sends."""
        return Stream(self.spark, (Inflow(sender=self),))

    @property
    def writeStream(self) -> StreamWriter:
        """How results leave the pipeline; its ``start`` runs it."""
        from afspark.api.writer import StreamWriter

        return StreamWriter(self)
