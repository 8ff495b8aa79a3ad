"""The prediction of loads as the command line runs it: predictions go to files below the checkpoint, slice by slice."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import LoadPrediction, LoadReadings, load_prediction
from afspark.algorithms.bad_rows import skipped_rows
from afspark.algorithms.load_prediction import CONVERSION, MINUTES
from afspark.algorithms.load_readings import COLUMNS, LARGEST
from afspark.algorithms.sums import sums_by_key
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.cli.algorithm_options import SMARTGRID
from afspark.cli.application_options import DEFAULT_DAYS, DEFAULT_HOUSES, SmartGridOptions
from afspark.cli.batch_files import BatchFiles
from afspark.cli.record_files import EITHER, NUMBER, record_source
from afspark.cli.tasks import CountedTask, Judgement, Shares
from afspark.errors import UsageError
from afspark.policies import Tolerance
from afspark.report.load_accuracy import load_errors
from afspark.report.recount_loads import CELL_NAMES, sum_loads
from afspark.sources import SmartPlugs, Source
from afspark.sources.generated_plugs import READING_BYTES

_PREDICTIONS = BatchFiles("predictions")
_SHOWN = ("minutes", "house", "from", "load", "past", "prediction", "low", "high")


class SmartGridTask(CountedTask):
    algorithm = SMARTGRID
    main_state = "readings"
    keys = (*CELL_NAMES, "what")
    operator: LoadPrediction

    def __init__(self, source: Source, converting: LoadReadings, operator: LoadPrediction) -> None:
        self.source, self.converting, self.operator = source, converting, operator
        self.recount = partial(sum_loads, source, operator=operator)

    def check(self) -> None:
        self.source.validate()
        self.converting.check(self.source.schema())

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        operator = self.operator
        applied: StatefulStream = load_prediction(
            stream,
            minutes=operator.minutes,
            days=operator.days,
            largest=operator.largest,
            unit=operator.unit,
            on_bad=self.converting.on_bad or "skip",
            workers=workers,
            tolerance=tolerance,
            name=self.algorithm,
        )
        return applied

    def write(self, stateful: StatefulStream, checkpoint: str) -> StreamWriter:
        return _PREDICTIONS.written(stateful, checkpoint)

    def results(self, query: Query, checkpoint: str) -> DataFrame:
        """The predictions from all slices that are over, and from those that are not."""
        newest = query.results()
        schema = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in newest.schema)
        return _PREDICTIONS.read(newest.sparkSession, checkpoint, schema).unionByName(newest)

    def told(self, query: Query) -> dict[str, Any]:
        return {"skipped": skipped_rows(query.shares(CONVERSION))}

    def judge(self, results: DataFrame, exact: pa.Table, shares: Shares) -> Judgement:
        found = load_errors(sums_by_key(shares(), "load", "readings"), results.toArrow(), exact, self.operator)
        return Judgement(
            {"state": found.readings, "load": found.load},
            {
                "compared": found.predictions,
                "outside": found.outside,
                "mean_error": found.mean_error,
                "mean_load": found.mean_load,
            },
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        """The newest predictions for houses, by the longest slices."""
        houses = results.filter(F.col("plug").isNull() & (F.col("minutes") == max(self.operator.minutes)))
        rows = houses.orderBy(F.desc("start"), F.desc("prediction"), "house").limit(count).collect()
        times = [
            {"from": f"{datetime.fromtimestamp(row['start'], UTC):%Y-%m-%d %H:%M}", **row.asDict()} for row in rows
        ]
        return [{name: row[name] for name in _SHOWN} for row in times]


def smartgrid_task(options: SmartGridOptions) -> SmartGridTask:
    """Source and operators; files and columns are checked by whoever asks."""
    largest = options.largest or LARGEST
    converting = LoadReadings(largest=largest, on_bad=options.on_bad)
    operator = LoadPrediction(minutes=options.slices or MINUTES, days=options.days, largest=largest, sends=True)
    return SmartGridTask(_source(options), converting, operator)


def _source(options: SmartGridOptions) -> Source:
    if options.generate is not None:
        rows = options.generate // READING_BYTES
        if rows < 1:
            raise UsageError(
                f"{options.generate} bytes hold no reading.", remedy=f"Use at least {READING_BYTES} bytes."
            )
        houses, days = options.houses or DEFAULT_HOUSES, options.generated_days or DEFAULT_DAYS
        return SmartPlugs(rows, seed=options.seed, houses=houses, days=days)
    columns = {name: EITHER if name == "timestamp" else NUMBER for name in COLUMNS[1:]}
    return record_source(options, columns, unnamed=COLUMNS)
