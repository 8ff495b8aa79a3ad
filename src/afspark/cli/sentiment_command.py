"""The sentiment of texts as the command line runs it: windows go to files below the checkpoint, as they close."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import KeywordFilter, Lexicon, Sentiment, keyword_sentiment
from afspark.algorithms.bad_rows import skipped_rows
from afspark.algorithms.keyword_filter import TIME
from afspark.algorithms.sentiment import FILTER
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.cli.algorithm_options import SENTIMENT
from afspark.cli.application_options import DEFAULT_SECONDS, SentimentOptions
from afspark.cli.batch_files import BatchFiles
from afspark.cli.record_files import EITHER, TEXT, record_source
from afspark.cli.tasks import CountedTask, Judgement, Shares
from afspark.errors import UsageError
from afspark.model.windows import Sliding
from afspark.policies import Tolerance
from afspark.report.recount_texts import count_sentiments
from afspark.report.window_accuracy import window_errors
from afspark.sources import Posts, Source
from afspark.sources.generated_posts import POST_BYTES, SUBJECTS

_WINDOWS = BatchFiles("windows")
_AMOUNTS = ("texts bigint", *(f"{name} double" for name in ("score", "mean", "bound_texts", "bound_score", "bound")))


class SentimentTask(CountedTask):
    algorithm = SENTIMENT
    main_state = "texts"
    operator: Sentiment

    def __init__(
        self, source: Source, filtering: KeywordFilter, operator: Sentiment, window: Sliding, *, end: bool
    ) -> None:
        self.source, self.filtering, self.operator, self.window, self.end = source, filtering, operator, window, end
        self.by = [operator.by] if operator.by else []
        self.keys = ("pane", "keyword", *self.by, "what")
        self.recount = partial(count_sentiments, source, filtering=filtering, operator=operator, pane=window.size)
        self.ended = False

    def check(self) -> None:
        self.source.validate()
        self.filtering.check(self.source.schema())

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        applied: StatefulStream = keyword_sentiment(
            stream,
            self.filtering.keywords,
            column=self.filtering.column,
            time=self.filtering.time,
            by=self.operator.by,
            lexicon=self.operator.lexicon,
            window=self.window,
            on_bad=self.filtering.on_bad or "skip",
            workers=workers,
            tolerance=tolerance,
            name=self.algorithm,
        )
        return applied

    def write(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        return _WINDOWS.written(stateful, checkpoint).option("bounds", True)

    def finish(self, query: Query, *, lasting: bool) -> None:
        """Closes the windows that are open, unless the checkpoint shall go on."""
        self.ended = self.end or not lasting
        if self.ended:
            query.end()

    def results(self, query: Query, checkpoint: str) -> DataFrame:
        spark = query.results().sparkSession
        texts = [f"`{name}` string" for name in ("keyword", *self.by)]
        schema = ["window_start double", "window_end double", *texts, *_AMOUNTS[:-1]]
        rows = _WINDOWS.read(spark, checkpoint, ", ".join(schema))
        # How far the mean can be off: see mean_bound.
        bound = (F.col("bound_score") + F.abs("mean") * F.col("bound_texts")) / F.col("texts")
        self._closed = rows.withColumn("bound", bound)
        return self._closed

    def told(self, query: Query) -> dict[str, Any]:
        # Windows that have closed are no part of the query's bounds any more.
        worst = self._closed.agg(F.max("bound_texts"), F.max("bound_score")).collect()[0]
        bounds = dict(zip(("texts", "score"), (float(value or 0.0) for value in worst), strict=True))
        return {"realised": bounds, "skipped": skipped_rows(query.shares(FILTER)), "late": query.totals.late}

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        errors = window_errors(results.toArrow(), exact, self.window, self.by, ended=self.ended)
        return Judgement(
            {"state": errors.texts, "score": errors.score},
            {"compared": errors.rows, "outside": errors.outside},
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        order = (F.desc("texts"), "window_start", "keyword")
        rows = results.orderBy(*order).drop("bound_texts", "bound_score").limit(count).collect()
        return [row.asDict() for row in rows]


def sentiment_task(options: SentimentOptions) -> SentimentTask:
    """Source and operators; files and columns are checked by whoever asks."""
    window = Sliding(options.window, options.slide, column=TIME, delay=options.delay)
    lexicon = Lexicon() if options.lexicon is None else Lexicon.load(options.lexicon)
    by = options.by
    filtering = KeywordFilter(
        options.keywords or SUBJECTS[:3],
        column=options.text,
        time=options.time,
        keep=[by] if by else [],
        on_bad=options.on_bad,
    )
    operator = Sentiment(column=options.text, by=by, lexicon=lexicon)
    return SentimentTask(_source(options), filtering, operator, window, end=options.end)


def _source(options: SentimentOptions) -> Source:
    if options.generate is not None:
        rows = options.generate // POST_BYTES
        if rows < 1:
            raise UsageError(f"{options.generate} bytes hold no post.", remedy=f"Use at least {POST_BYTES} bytes.")
        return Posts(rows, seed=options.seed, seconds=options.seconds or DEFAULT_SECONDS)
    by = {options.by: EITHER} if options.by else {}
    return record_source(options, {options.time: EITHER, options.text: TEXT, **by})
