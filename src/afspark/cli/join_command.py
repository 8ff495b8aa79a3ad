"""The online join as the command line runs it, on local shares: estimates need no exchange."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from afspark.algorithms import OnlineJoin
from afspark.algorithms.bad_rows import skipped_rows
from afspark.algorithms.online_join import LEFT, RIGHT
from afspark.api.query import Query
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.cli.algorithm_options import JOIN, JoinOptions
from afspark.cli.tasks import CountedTask, Judgement, Shares
from afspark.errors import UsageError
from afspark.policies import Tolerance
from afspark.report.accuracy import join_truth
from afspark.report.recount import count_tuples
from afspark.sources import ParquetFiles, PcapFiles, Source, Visits
from afspark.sources.generated_visits import VISIT_BYTES

_PACKET_KEYS = ("dst", "second")


class JoinTask(CountedTask):
    algorithm = JOIN
    main_state = "left"
    operator: OnlineJoin

    def __init__(self, left: Source, right: Source, operator: OnlineJoin) -> None:
        self.source, self.right, self.operator = left, right, operator
        self.keys = (*operator.on, "what")
        self.recount = partial(count_tuples, (left, right), join=operator)

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.source, self.right)

    def check(self) -> None:
        for side, source in zip((LEFT, RIGHT), self.sources, strict=True):
            source.validate()
            self.operator.check_stream(source.schema(), side)

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        other = Stream(stream.spark, (Inflow(self.right),)).map(self.operator.right)
        both = stream.map(self.operator.left).union(other)
        return both.apply(self.operator, workers=workers, tolerance=tolerance, name=self.algorithm)

    def told(self, query: Query) -> dict[str, Any]:
        return {"skipped": skipped_rows(query.shares())}

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        truth = join_truth(exact, self.operator.on)
        taken = dict.fromkeys(("left", "right"), 0)
        for share in shares():
            for name in taken:
                taken[name] += int(share.cells[name].column("value").to_numpy().sum())
        accuracy: dict[str, float] = {}
        for row in results.collect():
            name, exactly = row["aggregate"], truth[row["aggregate"]]
            accuracy |= {
                name: exactly,
                f"{name}_error": abs(row["estimate"] - exactly) / abs(exactly) if exactly else math.nan,
                f"{name}_inside": float(row["low"] <= exactly <= row["high"]),
            }
        lost = {name: truth[f"{name}_samples"] - count for name, count in taken.items()}
        return Judgement({"state": max(lost.values()), **{f"lost_{name}": n for name, n in lost.items()}}, accuracy)

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        return [row.asDict() for row in results.limit(count).collect()]


def join_task(options: JoinOptions) -> JoinTask:
    """Sources and operator; files and columns are checked by whoever asks."""
    value = options.value
    if options.generate is not None:
        value = value or "bytes"
    on = options.on or _PACKET_KEYS
    operator = OnlineJoin(
        on=on,
        rate=options.rate,
        value=value,
        confidence=options.confidence,
        seed=options.seed,
        on_bad=options.on_bad,
    )
    left, right = _sources(options, on, value)
    return JoinTask(left, right, operator)


def _sources(options: JoinOptions, on: tuple[str, ...], value: str | None) -> tuple[Source, Source]:
    if options.generate is not None:
        rows = options.generate // (2 * VISIT_BYTES)
        if rows < 1:
            raise UsageError(f"{options.generate} bytes hold no packets.", remedy=f"Use at least {2 * VISIT_BYTES}.")
        overlap = 0.5 if options.overlap is None else options.overlap
        left, right = (Visits(rows, stream=side, seed=options.seed, overlap=overlap) for side in (LEFT, RIGHT))
        return left, right
    assert options.input is not None and options.other is not None
    if options.format == "pcap":
        return PcapFiles(options.input, on_bad=options.on_bad), PcapFiles(options.other, on_bad=options.on_bad)
    columns = tuple(dict.fromkeys((*on, *([value] if value else []))))
    return ParquetFiles(options.input, columns=columns), ParquetFiles(options.other, columns=on)
