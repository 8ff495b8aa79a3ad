"""Grep as the command line runs it: lines go to files below the checkpoint, batch by batch."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import Grep
from afspark.api.query import Query
from afspark.api.stream import StatefulStream
from afspark.api.writer import StreamWriter
from afspark.cli.algorithm_options import GREP, GrepOptions
from afspark.cli.batch_files import BatchFiles
from afspark.cli.tasks import CountedTask, Judgement, Shares
from afspark.report.recount import count_matches
from afspark.sources import ParquetFiles, Source, TextFiles, ZipfWords

_LINES = BatchFiles("lines")


class GrepTask(CountedTask):
    algorithm = GREP
    main_state = "seen"
    keys = ("what",)
    operator: Grep

    def __init__(self, source: Source, operator: Grep) -> None:
        self.source, self.operator = source, operator
        settings = {name: getattr(operator, name) for name in ("pattern", "column", "regex", "ignore_case", "invert")}
        self.recount = partial(count_matches, source, **settings)

    def write(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        return _LINES.written(stateful, checkpoint)

    def results(self, query: Query, checkpoint: str) -> DataFrame:
        return _LINES.read(query.results().sparkSession, checkpoint, f"`{self.operator.column}` string")

    def told(self, query: Query) -> dict[str, Any]:
        counts = self._counts(query)
        last = query.lastProgress
        # Blocks of lines are what a batch counts; the operator has counted the lines of all batches.
        whole = last is not None and last["batch"] + 1 == query.totals.batches
        return {"skipped": counts["skipped"], **({"items": counts["seen"]} if whole else {})}

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        counts = self.operator.results(shares()).to_pylist()[0]
        truth = dict(zip(exact.column("what").to_pylist(), exact.column("count").to_pylist(), strict=True))
        text = F.col(self.operator.column).cast("binary")
        found = results.select(F.count("*").alias("lines"), F.sum(F.crc32(text)).alias("sum")).collect()[0]
        same = (found["lines"], found["sum"] or 0) == (truth["matched"], truth["checksum"])
        return Judgement(
            {
                "state": max(abs(counts[name] - truth[name]) for name in ("seen", "matched")),
                "lines": abs(found["lines"] - truth["matched"]),
            },
            {"matched": truth["matched"], "same": float(same)},
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        column = self.operator.column
        # Lines need not be UTF-8; bytes can always be taken out.
        rows = results.select(F.col(column).cast("binary").alias("line")).limit(count).collect()
        return [{"line": bytes(row["line"]).decode(errors="replace")} for row in rows]

    def _counts(self, query: Query) -> dict[str, int]:
        return self.operator.results(query.shares()).to_pylist()[0]


def grep_task(options: GrepOptions) -> GrepTask:
    """Source and operator; files and columns are checked by whoever asks."""
    source: Source
    column = "value"
    if options.generate is not None:
        source = ZipfWords(options.generate, seed=options.seed)
    elif options.format == "parquet":
        assert options.input is not None
        column = options.column
        source = ParquetFiles(options.input, columns=(column,))
    else:
        assert options.input is not None
        source = TextFiles(options.input, blocks=True)
    operator = Grep(
        options.pattern,
        column=column,
        regex=options.regex,
        ignore_case=options.ignore_case,
        invert=options.invert,
        count=True,
        on_bad=options.on_bad,
    )
    return GrepTask(source, operator)
