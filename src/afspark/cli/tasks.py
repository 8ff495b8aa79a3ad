"""The algorithms as the command line runs them: source, operator, exact recount and the rows that are shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import HeavyHitters, WordCount
from afspark.algorithms.bad_rows import skipped_rows
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.cli.algorithm_options import (
    BARGAIN,
    DEFAULT_RECOVERY_SECONDS,
    DEFAULT_THETA,
    GREP,
    HEAVY_HITTERS,
    JOIN,
    REGRESSION,
    SENTIMENT,
    SMARTGRID,
    WORDCOUNT,
    CommandOptions,
)
from afspark.cli.planning import Plan
from afspark.cli.verify import recount
from afspark.errors import UsageError
from afspark.model.operator import Operator, Share
from afspark.policies import (
    Adaptive,
    Approximate,
    BarrierSnapshot,
    Costs,
    MiniBatch,
    Nothing,
    Tolerance,
    UpstreamBackup,
)
from afspark.policies.replication import SCHEMES
from afspark.report.accuracy import hitter_errors, word_errors
from afspark.report.document import RunReport
from afspark.report.recount import count_words, sum_weights
from afspark.sources import Chunk, Packets, ParquetFiles, PcapFiles, Source, TextFiles, ZipfWords
from afspark.sources.generated_packets import MEAN_PAYLOAD

Shares = Callable[[], Sequence[Share]]
"""Asks the query for the workers' shares; only where they are needed, as they come to the driver."""

PACKET_BYTES = 24
HEAVY_SHARE = 500
"""A generated key is heavy if it carries at least one part in so many of the traffic."""


@dataclass(frozen=True)
class Judgement:
    """The outcome of an exact recount: error by the measure of Θ, and whatever else can be compared."""

    observed: Mapping[str, float]
    accuracy: Mapping[str, float]


class Task(ABC):
    """One algorithm over one source."""

    algorithm: ClassVar[str]
    #: the state that thresholds and errors are reported for
    main_state: ClassVar[str]
    #: whether a tolerance promises a bound on the final state
    bounded: ClassVar[bool] = True
    source: Source
    operator: Operator

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that is read; the first is the one of ``apply``."""
        return (self.source,)

    def check(self) -> None:
        """UsageError if there is no input, or none that the operator can use."""
        self.source.validate()
        self.operator.check(self.source.schema())

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        """The operators of the task, on a stream of its source."""
        return stream.apply(self.operator, workers=workers, tolerance=tolerance, name=self.algorithm)

    def write(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        """Where the results of batches go: nowhere, if what is asked for in the end is all there is."""
        return stateful.writeStream

    def finish(self, query: Query, *, lasting: bool) -> None:  # noqa: B027 - most have nothing to do then
        """All input was processed; ``lasting``: the checkpoint stays, and a later run may go on."""

    def results(self, query: Query, checkpoint: str) -> DataFrame:
        """What the query has come to."""
        return query.results()

    def told(self, query: Query) -> dict[str, Any]:
        """Further fields of the report."""
        return {}

    def learned(self, query: Query) -> Mapping[str, Any] | None:
        """What a learner has come to."""
        return None

    def draw(self, report: RunReport) -> None:  # noqa: B027 - most have nothing to show
        """Draws what was asked for."""

    @abstractmethod
    def verify(self, results: DataFrame, query: Query, plan: Plan, workers: int) -> Judgement:
        """Works everything out exactly and compares."""

    @abstractmethod
    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        """The largest results."""


class CountedTask(Task):
    """A task whose exact results can be counted chunk by chunk and added up."""

    #: key columns of the exact recount
    keys: Sequence[str]
    #: exact results of some chunks; runs in Spark tasks
    recount: Callable[[Iterable[Chunk]], pa.Table]

    def verify(self, results: DataFrame, query: Query, plan: Plan, workers: int) -> Judgement:
        sc = results.sparkSession.sparkContext
        return self.judge(results, recount(sc, self.recount, plan.chunks, self.keys), query.shares)

    @abstractmethod
    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        """Compares the results with those of the recount; ``shares`` gives the state they were made from."""


class WordCountTask(CountedTask):
    algorithm = WORDCOUNT
    main_state = "counts"
    keys = ("word",)

    def __init__(self, source: Source, *, column: str = "value", lower: bool = False) -> None:
        self.source = source
        self.operator = WordCount(column=column, lower=lower)
        self.recount = partial(count_words, source, column=column, lower=lower)

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        errors = word_errors(results.toArrow(), exact)
        return Judgement(
            {"state": errors.largest, "words_wrong": errors.words_wrong, "total": errors.total},
            {"words": errors.words},
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        largest = results.orderBy(F.desc("count"), "word").limit(count)
        # Words need not be UTF-8; bytes can always be taken out.
        rows = largest.select(F.col("word").cast("binary").alias("word"), "count").collect()
        return [{"word": bytes(row["word"]).decode(errors="replace"), "count": row["count"]} for row in rows]


class HeavyHittersTask(CountedTask):
    algorithm = HEAVY_HITTERS
    main_state = "sketch"
    operator: HeavyHitters

    def __init__(self, source: Source, operator: HeavyHitters) -> None:
        self.source, self.operator = source, operator
        self.keys = operator.keys
        self.recount = partial(sum_weights, source, keys=operator.keys, weight=operator.weight)

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        errors = hitter_errors(
            results.toArrow(),
            exact,
            keys=self.operator.keys,
            threshold=self.operator.threshold,
            sketch=self._merged(shares()),
        )
        return Judgement(
            {"state": errors.largest},
            {
                "precision": errors.precision,
                "recall": errors.recall,
                "reported": errors.reported,
                "true": errors.true,
            },
        )

    def told(self, query: Query) -> dict[str, Any]:
        return {"skipped": skipped_rows(query.shares())}

    def _merged(self, shares: Sequence[Share]) -> np.ndarray[Any, Any]:
        sketch = np.zeros(self.operator.shape, dtype=self.operator.value)
        for share in shares:
            cells = share.cells["sketch"]
            sketch.reshape(-1)[cells.column("index").to_numpy()] += cells.column("value").to_numpy()
        return sketch

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        return [row.asDict() for row in results.orderBy(F.desc("estimate"), *self.keys).limit(count).collect()]


def task_of(options: CommandOptions) -> Task:
    """Source and operator, checked against each other; needs no Spark."""
    task = _maker(options.algorithm)(options)
    task.check()
    return task


def _maker(algorithm: str) -> Callable[[Any], Task]:
    if algorithm in _MAKERS:
        return _MAKERS[algorithm]
    module, name = _ELSEWHERE[algorithm]
    make: Callable[[Any], Task] = getattr(import_module(f"afspark.cli.{module}"), name)
    return make


def tolerance_of(options: CommandOptions) -> Tolerance:
    if options.tolerance == "none":
        return Nothing()
    if options.tolerance == "minibatch":
        return MiniBatch()
    if options.tolerance == "upstream":
        return UpstreamBackup()
    if options.tolerance == "snapshot":
        return BarrierSnapshot(interval=options.interval)
    for scheme in SCHEMES:
        if options.tolerance == scheme.name:
            return scheme(interval=options.interval, gap=options.gap)
    if options.tolerance == "adaptive":
        limit = DEFAULT_RECOVERY_SECONDS if options.recovery_seconds is None else options.recovery_seconds
        costs = Costs(**dict(options.costs or ()))
        return Adaptive(recovery_seconds=limit, costs=costs, gap=options.gap, theta=options.theta)
    theta = DEFAULT_THETA[options.algorithm] if options.theta is None else options.theta
    return Approximate(theta, items=options.items)


def _word_count(options: CommandOptions) -> Task:
    if options.generate is not None:
        return WordCountTask(ZipfWords(options.generate, seed=options.seed), lower=options.lower)
    assert options.input is not None
    if options.format == "parquet":
        source = ParquetFiles(options.input, columns=(options.column,))
        return WordCountTask(source, column=options.column, lower=options.lower)
    return WordCountTask(TextFiles(options.input, blocks=True), lower=options.lower)


def _heavy_hitters(options: CommandOptions) -> Task:
    source: Source
    if options.generate is not None:
        rows = options.generate // PACKET_BYTES
        if rows < 1:
            raise UsageError(f"{options.generate} bytes hold no packet.", remedy=f"Use at least {PACKET_BYTES} bytes.")
        source = Packets(rows, seed=options.seed)
        keys, weight = options.keys or ("src", "dst"), options.weight or "bytes"
        threshold = options.threshold or max(1, rows * MEAN_PAYLOAD // HEAVY_SHARE)
    else:
        assert options.input is not None and options.keys and options.weight and options.threshold
        keys, weight, threshold = options.keys, options.weight, options.threshold
        if options.format == "text":
            source = TextFiles(options.input, blocks=False)
        elif options.format == "pcap":
            source = PcapFiles(options.input, on_bad=options.on_bad)
        else:
            source = ParquetFiles(options.input, columns=tuple(dict.fromkeys((*keys, weight))))
    return HeavyHittersTask(source, _hitters(source, options, keys, weight, threshold))


def _hitters(
    source: Source, options: CommandOptions, keys: tuple[str, ...], weight: str, threshold: float
) -> HeavyHitters:
    schema = source.schema()
    floating = weight in schema.names and pa.types.is_floating(schema.field(weight).type)
    return HeavyHitters(
        keys=keys,
        weight=weight,
        threshold=threshold,
        rows=options.rows,
        columns=options.columns,
        value="float64" if floating else "int64",
        on_bad=options.on_bad,
    )


_MAKERS: Mapping[str, Callable[[CommandOptions], Task]] = {WORDCOUNT: _word_count, HEAVY_HITTERS: _heavy_hitters}
#: Modules that import this one, and their functions.
_ELSEWHERE = {
    GREP: ("grep_command", "grep_task"),
    JOIN: ("join_command", "join_task"),
    REGRESSION: ("regression_command", "regression_task"),
    SENTIMENT: ("sentiment_command", "sentiment_task"),
    SMARTGRID: ("smartgrid_command", "smartgrid_task"),
    BARGAIN: ("bargain_command", "bargain_task"),
}
