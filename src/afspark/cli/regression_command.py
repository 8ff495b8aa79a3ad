"""Logistic regression as the command line runs it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from afspark.algorithms import Features, LocalRegression, LogisticLearner, logistic_regression, train
from afspark.algorithms.logistic_regression import GLOBAL, LOCAL
from afspark.api.query import Query
from afspark.api.stream import StatefulStream, Stream
from afspark.cli.algorithm_options import (
    CLICKS,
    DEFAULT_ITERATION,
    DEFAULT_ROWS,
    LIBSVM,
    PARQUET,
    REGRESSION,
    RegressionOptions,
)
from afspark.cli.places import check_file
from afspark.cli.planning import MemoryLog, Plan
from afspark.cli.tasks import Judgement, Task
from afspark.errors import UsageError
from afspark.model.consistency import Consistency, consistency_of
from afspark.model.onbad import SKIP
from afspark.model.training import DRIVER
from afspark.policies import Tolerance
from afspark.report.convergence_plot import save_convergence
from afspark.report.document import RunReport
from afspark.report.regression_text import relearn
from afspark.sources import Chunk, Clicks, CsvFiles, Higgs, LibsvmFiles, ParquetFiles, Source


class RegressionTask(Task):
    algorithm = REGRESSION
    main_state = "model"
    bounded = False
    operator: LocalRegression

    def __init__(
        self,
        source: Source,
        operator: LocalRegression,
        consistency: Consistency | None = None,
        iteration: int = DEFAULT_ITERATION,
        plot: str | None = None,
        servers: str = DRIVER,
    ) -> None:
        self.source, self.operator, self.servers = source, operator, servers
        self.consistency, self.iteration, self.plot = consistency, iteration, plot

    def check(self) -> None:
        if self.plot is not None:
            check_file(self.plot, "--plot")
            if Path(self.plot).suffix != ".png":
                raise UsageError(f"--plot {self.plot!r} is no picture.", remedy="Name a file that ends with .png.")
        super().check()

    def apply(self, stream: Stream, *, workers: int, tolerance: Tolerance) -> StatefulStream:
        operator = self.operator
        if self.consistency is not None:
            trained: StatefulStream = train(
                stream,
                LogisticLearner(operator.features, rate=operator.rate),
                iteration=self.iteration,
                consistency=self.consistency,
                workers=workers,
                tolerance=tolerance,
                on_bad=operator.on_bad or SKIP,
                servers=self.servers,
            )
            return trained
        applied: StatefulStream = logistic_regression(
            stream,
            features=operator.features,
            rate=operator.rate,
            merge_every=operator.merge_every,
            on_bad=operator.on_bad or SKIP,
            workers=workers,
            tolerance=tolerance,
        )
        return applied

    def told(self, query: Query) -> dict[str, Any]:
        if self.consistency is None:
            return {}
        return {"convergence": {**query.convergence(GLOBAL), "exchange": query.exchanges().get(LOCAL)}}

    def draw(self, report: RunReport) -> None:
        if self.plot is not None and report.convergence is not None and report.convergence["merges"]:
            title = f"{report.convergence['items']:,} items, {self.consistency}, steps of {self.iteration:,}"
            save_convergence(Path(self.plot), report.convergence, report.convergence["exchange"], title=title)

    def learned(self, query: Query) -> dict[str, Any]:
        """The row that the local workers' counts come to."""
        return dict(self.operator.results(query.shares(LOCAL)).to_pylist()[0])

    def verify(self, results: DataFrame, query: Query, plan: Plan, workers: int) -> Judgement:
        """Learns everything again in this process, without failures; where workers train together, in rounds."""
        exact = relearn(
            self.source,
            batches(self.source, plan.batch_bytes, workers),
            self.operator.features,
            self.operator.rate,
            iteration=None if self.consistency is None else self.iteration,
        )
        found = self.learned(query)
        model = np.zeros(self.operator.features.cells)
        rows = results.select("index", "weight").toArrow()
        model[rows.column("index").to_numpy()] = rows.column("weight").to_numpy()
        return Judgement(
            {"state": float(np.linalg.norm(model - exact.model)), "items": exact.items - found["items"]},
            {
                "prediction_rate": found["prediction_rate"] or 0.0,
                "failure_free_rate": exact.prediction_rate,
                "failure_free_log_loss": exact.log_loss,
                "model_length": float(np.linalg.norm(exact.model)),
            },
        )

    def top(self, results: DataFrame, count: int) -> list[dict[str, Any]]:
        largest = results.orderBy(F.desc(F.abs("weight")), "index").limit(count)
        return [row.asDict() for row in largest.collect()]


def batches(source: Source, batch_bytes: int, workers: int) -> Iterator[Sequence[Sequence[Chunk]]]:
    """The chunks of each worker, batch by batch, as the query divides them."""
    planner = source.divided(batch_bytes, workers).planner(MemoryLog())
    start, end = planner.initial(), planner.discover()
    while start != end:
        stop = planner.limit(start, end, batch_bytes)
        yield planner.shares(planner.chunks(start, stop), workers)
        start = stop


def regression_task(options: RegressionOptions) -> RegressionTask:
    """Source and operator; files and columns are checked by whoever asks."""
    features = Features(
        label=options.label,
        positive=options.positive,
        numeric=options.numeric,
        categorical=options.categorical,
        slots=options.slots,
        norm=options.norm,
    )
    operator = LocalRegression(features, rate=options.rate, merge_every=options.merge_every, on_bad=options.on_bad)
    consistency = None if options.consistency is None else consistency_of(options.consistency)
    iteration = options.iteration or DEFAULT_ITERATION
    return RegressionTask(_source(options), operator, consistency, iteration, options.plot, options.servers)


def _source(options: RegressionOptions) -> Source:
    if options.data is not None:
        make = Clicks if options.data == CLICKS else Higgs
        return make(options.count or DEFAULT_ROWS, seed=options.seed)
    assert options.input is not None
    if options.format == LIBSVM:
        return LibsvmFiles(options.input, on_bad=options.on_bad)
    if options.format == PARQUET:
        named = (*options.numeric, *options.categorical)
        return ParquetFiles(options.input, columns=(options.label, *named) if named else None)
    return CsvFiles(
        options.input,
        label=options.label,
        numeric=options.numeric,
        categorical=options.categorical,
        text_label=options.positive is not None,
        names=options.names,
        delimiter=options.delimiter,
        on_bad=options.on_bad,
    )
