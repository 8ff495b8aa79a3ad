"""Runs in which workers train one model: how fast, and how well."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.algorithms.model_training import GLOBAL, LOCAL, GlobalModel, LocalTraining
from afspark.bench.anomalous_clicks import GappedClicks
from afspark.bench.learning_curves import thinned_curve
from afspark.bench.seen_batches import SeenBatches, costs
from afspark.bench.watched_run import watched_run
from afspark.model.consistency import Consistency
from afspark.model.learner import Learned
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.sources import Clicks, Higgs, Source
from afspark.sources.labelled_rows import CLICK_BYTES, HIGGS_BYTES

WORKERS = 2
#: The papers' cluster: so many local workers, and a slot for the global one.
ELEVEN, SLOTS = 11, 12
#: Items of a chunk, which nobody divides.
CHUNK = 1 << 15


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


#: Of the shape of KDD Cup 2012 (11 of a million features) and of HIGGS (28 numbers), for two workers.
DATA = {
    "clicks": TrainingData(partial(Clicks, seed=1), CLICK_BYTES, 32 * CHUNK, 2 * CHUNK),
    "higgs": TrainingData(partial(Higgs, seed=1), HIGGS_BYTES, 32 * CHUNK, 2 * CHUNK),
}


def eleven_data(chunks: int, steps: int) -> dict[str, TrainingData]:
    """The same for eleven workers: so many chunks of each in a batch, in so many steps. Clicks have an anomalous
    stretch, whose items miss a feature.
    """
    sizes = {"batch": chunks * ELEVEN * CHUNK, "iteration": chunks * CHUNK // steps}
    return {
        "clicks": TrainingData(partial(GappedClicks, seed=1), CLICK_BYTES, **sizes),
        "higgs": TrainingData(partial(Higgs, seed=1), HIGGS_BYTES, **sizes),
    }


@dataclass(frozen=True, kw_only=True)
class Delays:
    """How workers are disturbed: the first takes ``slow`` times as long, and every step of everybody is, with a chance
    of ``chance``, ``longer`` steps longer. ``length``: seconds that a step takes at least, as if every worker had a
    machine of its own, whatever the others do to the cores that they share.
    """

    slow: float = 1.0
    chance: float = 0.0
    longer: float = 0.0
    length: float = 0.0

    def extra(self, worker: int, batch: int, step: int) -> float:
        """How many step lengths a worker sleeps after a step."""
        drawn = np.random.default_rng((worker, batch, step)).random() < self.chance
        return (self.slow - 1.0 if worker == 0 else 0.0) + (self.longer if drawn else 0.0)

    def pause(self, taken: float, worker: int, batch: int, step: int) -> float:
        """Seconds that a worker sleeps after a step that has taken so many."""
        whole = max(taken, self.length)
        return whole - taken + whole * self.extra(worker, batch, step)


class DelayedTraining(LocalTraining):
    """Workers that sleep after what they learn in a step, before they push it."""

    delays = Delays()

    def begin(self, states: Any, context: af.WorkerContext) -> None:
        super().begin(states, context)
        self._made = 0

    def _learn(self, items: pa.RecordBatch, seen: int) -> Learned:
        started = time.perf_counter()
        learned = super()._learn(items, seen)
        taken = time.perf_counter() - started
        time.sleep(self.delays.pause(taken, self.context.worker, self.context.batch, self._made))
        self._made += 1
        return learned


@dataclass(frozen=True)
class KilledWorkers(FaultPlan):
    """A plan that hits the first so many local workers: all at the same moment."""

    killed: int = 0

    def hits(self, operator: str, worker: int) -> bool:
        return bool(self.failures) and operator == LOCAL and worker < self.killed


def kills_after(killed: int, *, batch: int) -> FaultPlan:
    """In the middle of ``batch`` so many local workers lose their state and their process."""
    if not killed:
        return FaultPlan()
    failures = frozenset({InjectedFailure(batch, FaultPhase.APPLYING)})
    return KilledWorkers(failures, f"killed-{killed}", killed=killed)


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
    """Workers that train a logistic regression, disturbed or not."""
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


def trained_run(
    model: af.StatefulStream, data: TrainingData, *, faults: FaultPlan | None = None, together: bool = True
) -> dict[str, Any]:
    """What a run costs, and what the model came to; ``together``: how it converged, in seconds from its first merge on,
    whether theorem 1 held, and the pushes and pulls of its last batch, which is unknown where models are merged by batch.
    """
    seen = SeenBatches()
    writer = model.writeStream
    if faults is not None:
        writer = writer.inject(faults)
    with watched_run(writer, seen, batch_bytes=data.batch_bytes) as ended:
        (told,) = ended.query.results(LOCAL).collect()
        figures = costs(seen)
        found = _converged(ended.query) if together else {}
    return {
        "items_per_second": figures["records_per_second"],
        "batch": figures["batch"],
        "backup_bytes": figures["backup_bytes"],
        "log_loss": told.log_loss,
        "prediction_rate": told.prediction_rate,
        **found,
    }


def _converged(query: af.Query) -> dict[str, Any]:
    found = query.convergence(GLOBAL)
    kept = ("merges", "failures", "regret_per_item", "held")
    # How long processes take to start is no matter of how a model converges.
    began = found["curve"][0][0]
    return {
        **{name: found[name] for name in kept},
        "seconds": found["seconds"] - began,
        "batches": [[at - began, *others] for at, *others in found["batches"]],
        "curve": thinned_curve([[at - began, *others] for at, *others in found["curve"]]),
        "events": query.exchanges().get(LOCAL, {"pushes": [], "pulls": []}),
    }
