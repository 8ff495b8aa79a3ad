"""Bargain Discovery as the command line runs it: bargains go to files below the checkpoint, batch by batch."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import BargainIndex, TradeQuote, bargain_discovery
from afspark.algorithms.bad_rows import skipped_rows
from afspark.algorithms.bargain_index import AGGREGATOR, AVERAGES, TRADE_QUOTE
from afspark.algorithms.trade_quotes import EVENT_COLUMNS
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.cli.algorithm_options import BARGAIN
from afspark.cli.application_options import DEFAULT_SYMBOLS, BargainOptions
from afspark.cli.batch_files import BatchFiles
from afspark.cli.planning import Plan
from afspark.cli.record_files import EITHER, NUMBER, TEXT, record_source
from afspark.cli.tasks import Judgement, Task
from afspark.errors import UsageError
from afspark.policies import Tolerance
from afspark.report.bargain_accuracy import bargain_errors
from afspark.report.recount_bargains import exact_bargains
from afspark.sources import MarketEvents, Source
from afspark.sources.generated_market import EVENT_BYTES

_BARGAINS = BatchFiles("bargains")
_SCHEMA = "key bigint, time double, ticker string, ask_price double, ask_size bigint, average double, gain double"


class BargainTask(Task):
    algorithm = BARGAIN
    main_state = AVERAGES

    def __init__(self, source: Source, events: TradeQuote) -> None:
        self.source, self.events, self.operator = source, events, BargainIndex()

    def check(self) -> None:
        try:
            self.source.validate()
            self.events.check(self.source.schema())
        except UsageError as error:
            if error.fields.get("column") != "key":
                raise
            raise UsageError(
                "The events have no column 'key', their position in the stream.",
                remedy="Number them once: afspark.sources.market_files.load_events(…), then write_events(…).",
                column="key",
            ) from error

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        applied: StatefulStream = bargain_discovery(
            stream, on_bad=self.events.on_bad or "skip", workers=workers, tolerance=tolerance
        )
        return applied

    def write(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        return _BARGAINS.written(stateful, checkpoint)

    def results(self, query: Query, checkpoint: str) -> DataFrame:
        return _BARGAINS.read(query.results().sparkSession, checkpoint, _SCHEMA)

    def told(self, query: Query) -> dict[str, Any]:
        return {"realised": {AVERAGES: _bound(query)}, "skipped": skipped_rows(query.shares(TRADE_QUOTE))}

    def verify(self, results: DataFrame, query: Query, plan: Plan, workers: int) -> Judgement:
        """Finds all bargains again in this process, without failures."""
        exact = exact_bargains(batch for chunk in plan.chunks for batch in self.source.read(chunk))
        found = bargain_errors(results.toArrow(), query.results().toArrow(), exact, bound=_bound(query))
        return Judgement(
            {"state": found.average},
            {
                "compared": found.rows,
                "outside": found.outside,
                "gain": found.gain,
                "exact_gain": found.exact_gain,
            },
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        """The largest gains."""
        return [row.asDict() for row in results.orderBy(F.desc("gain"), "key").limit(count).collect()]


def bargain_task(options: BargainOptions) -> BargainTask:
    """Source and operators; files and columns are checked by whoever asks."""
    return BargainTask(_source(options), TradeQuote(on_bad=options.on_bad))


def _source(options: BargainOptions) -> Source:
    if options.generate is not None:
        rows = options.generate // EVENT_BYTES
        if rows < 1:
            raise UsageError(f"{options.generate} bytes hold no event.", remedy=f"Use at least {EVENT_BYTES} bytes.")
        return MarketEvents(rows, seed=options.seed, symbols=options.symbols or DEFAULT_SYMBOLS)
    kinds = {"time": EITHER, "ticker": TEXT, "type": TEXT}
    return record_source(options, {name: kinds.get(name, NUMBER) for name in EVENT_COLUMNS})


def _bound(query: Query) -> float:
    """How far failures can have moved an average: prices of recent trades, and averages themselves."""
    return query.bounds(AGGREGATOR)["price"] + query.bounds()[AVERAGES]
