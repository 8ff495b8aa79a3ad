"""Runs in which workers train one model: how fast, and how well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.algorithms.model_training import GLOBAL, LOCAL, GlobalModel, LocalTraining
from afspark.algorithms.progressive import Progress
from afspark.bench.seen_batches import SeenBatches, costs
from afspark.bench.watched_run import watched_run
from afspark.model.consistency import Consistency
from afspark.sources import Clicks, Higgs, Source
from afspark.sources.labelled_rows import CLICK_BYTES, HIGGS_BYTES

WORKERS = 2


@dataclass(frozen=True)
class TrainingData:
    """Items to learn from, so many a batch; ``iteration`` is the usual step."""

    make: Callable[[int], Source]
    item_bytes: int
    batch: int
    iteration: int

    @property
    def batch_bytes(self) -> int:
        return self.batch * self.item_bytes


#: Of the shape of KDD Cup 2012 (11 of a million features) and of HIGGS (28 numbers).
DATA = {
    "clicks": TrainingData(partial(Clicks, seed=1), CLICK_BYTES, 1 << 20, 1 << 16),
    "higgs": TrainingData(partial(Higgs, seed=1), HIGGS_BYTES, 1 << 19, 1 << 14),
}


@dataclass(frozen=True, kw_only=True)
class Delays:
    """How workers are disturbed: the first takes ``slow`` times as long, and every step of everybody is, with a chance
    of ``chance``, ``longer`` steps longer.
    """

    slow: float = 1.0
    chance: float = 0.0
    longer: float = 0.0

    def extra(self, worker: int, batch: int, step: int) -> float:
        """How many step lengths a worker sleeps after a step."""
        drawn = np.random.default_rng((worker, batch, step)).random() < self.chance
        return (self.slow - 1.0 if worker == 0 else 0.0) + (self.longer if drawn else 0.0)


class DelayedTraining(LocalTraining):
    """Workers that sleep after steps."""

    delays = Delays()

    def begin(self, states: Any, context: af.WorkerContext) -> None:
        super().begin(states, context)
        self._made = 0

    def _step(self, items: pa.RecordBatch, progress: Progress) -> None:
        if self._model is None:
            self._pull()
        started = time.perf_counter()
        self.learner.learn(self._model, items, progress.items)
        length = time.perf_counter() - started
        time.sleep(length * self.delays.extra(self.context.worker, self.context.batch, self._made))
        self._made += 1
        super()._step(items, progress)


def training(
    spark: SparkSession,
    data: TrainingData,
    tolerance: af.Tolerance,
    *,
    rows: int,
    iteration: int,
    consistency: Consistency,
    workers: int = WORKERS,
    delays: Delays | None = None,
) -> af.StatefulStream:
    """Workers that train a logistic regression; disturbed ones do every step twice, so that its length is known."""
    learner = af.LogisticLearner()
    kind = LocalTraining if delays is None else DelayedTraining
    operator = kind(learner, model=GLOBAL, iteration=iteration, consistency=consistency)
    if isinstance(operator, DelayedTraining) and delays is not None:
        operator.delays = delays
    stream = af.read_stream(spark).source(data.make(rows))
    trained = stream.apply(operator, name=LOCAL, workers=workers, tolerance=tolerance)
    return trained.apply(GlobalModel(learner), name=GLOBAL, workers=1, tolerance=tolerance, feeds_back=[LOCAL])


def merged_by_batch(
    spark: SparkSession, data: TrainingData, tolerance: af.Tolerance, *, rows: int
) -> af.StatefulStream:
    """The same model, merged once a batch and fed back."""
    stream = af.read_stream(spark).source(data.make(rows))
    model: af.StatefulStream = af.logistic_regression(stream, workers=WORKERS, tolerance=tolerance)
    return model


def trained_run(model: af.StatefulStream, data: TrainingData) -> dict[str, float]:
    """What a run costs, and what the model came to."""
    seen, curve = SeenBatches(), []

    def keep(rows: DataFrame, batch: int) -> None:
        curve.extend(rows.select("batch", "log_loss").collect())

    writer = model.writeStream.outputMode("append").foreachBatch(keep)
    with watched_run(writer, seen, batch_bytes=data.batch_bytes) as ended:
        (told,) = ended.query.results(LOCAL).collect()
        figures = costs(seen)
    return {
        "items_per_second": figures["records_per_second"],
        "batch": figures["batch"],
        "backup_bytes": figures["backup_bytes"],
        "merges": float(len(curve)),
        "log_loss": told.log_loss,
        "prediction_rate": told.prediction_rate,
    }
