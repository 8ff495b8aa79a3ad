"""Experiment 5: online logistic regression, prediction rate after failures; theorem 1 of the extended paper."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.algorithms.logistic_regression import LOCAL, LocalRegression
from afspark.api.result_shares import current_shares
from afspark.bench.accuracy.prefixes import Prefixes
from afspark.bench.accuracy.trial import BATCHES, FAILURES, AccuracyStudy
from afspark.bounds.learning import Risk, average_regret_bound
from afspark.model.kernels.plain_arrays import Array
from afspark.sources import Clicks
from afspark.sources.chunks import NumberedChunk
from afspark.sources.labelled_rows import CLICK_BYTES, CLICK_FEATURES

RATE = 1.0
_ROWS_A_CHUNK = 1 << 15


class RegressionStudy(AccuracyStudy):
    """Clicks with eleven features of a million values; the first half teaches, the second one tests."""

    measure, more_is_better, mode = "prediction rate", True, "append"
    tolerances = {  # noqa: RUF012 (settings of the papers)
        "Θ = 10, L = 10³": af.Approximate(theta=10, items=1e3, unacked=1e3),
        "Θ = 1, L = 10²": af.Approximate(theta=1, items=1e2, unacked=1e3),
    }

    def __init__(self, rows_per_batch: int = 1 << 17, test_rows: int = 1 << 19) -> None:
        self.items = rows_per_batch * BATCHES
        self.batch_bytes = rows_per_batch * CLICK_BYTES
        self.source = Clicks(self.items, seed=1)
        self.learner = LocalRegression(rate=RATE)
        self.learner.check(self.source.schema())
        first = self.items // _ROWS_A_CHUNK
        self._test_chunks = [
            NumberedChunk(index=first + place, units=_ROWS_A_CHUNK, bytes=0)
            for place in range(test_rows // _ROWS_A_CHUNK)
        ]

    def stream(self, spark: SparkSession, tolerance: af.Tolerance) -> af.StatefulStream:
        clicks = af.read_stream(spark).source(self.source)
        model: af.StatefulStream = af.logistic_regression(clicks, rate=RATE, tolerance=tolerance, workers=2)
        return model

    def collect(self, frame: DataFrame, query: af.Query) -> pa.Table:
        # Past Spark: a million weights would take it longer than the batch.
        run = query._engine.run_of()
        return run.node.operator.results(current_shares(query._cluster, run))

    def score(self, results: pa.Table, batch: int) -> dict[str, float]:
        labels, cells = self._test
        model = self._model(results)
        predicted = model[0] + model[cells].sum(axis=1) > 0
        return {"score": float(np.mean(predicted == labels))}

    def verdict(self, query: af.Query, results: pa.Table, tolerance: af.Approximate) -> dict[str, float]:
        model = self._model(results)
        # The regret against the model that the stream itself came to; the best one in hindsight is hardly better.
        (row,) = self.learner.results(query.shares(LOCAL)).to_pylist()
        regret = row["log_loss"] - self._loss(model)
        risk = Risk(gradient=math.sqrt(1 + CLICK_FEATURES), diameter=math.sqrt(2) * float(np.linalg.norm(model)))
        alpha = self.learner.alpha
        promised = average_regret_bound(
            risk, steps=self.items, failures=FAILURES, theta=tolerance.theta, items=tolerance.items, alpha=alpha
        )
        taken = query.bounds(LOCAL)["model"]
        return {
            "observed": regret,
            "promised": promised,
            "realised": taken,
            "theta": tolerance.theta,
            "held": float(regret <= promised and taken <= tolerance.theta),
        }

    def _model(self, results: pa.Table) -> Array:
        model = np.zeros(self.learner.features.cells)
        model[results.column("index").to_numpy()] = results.column("weight").to_numpy()
        return model

    def _loss(self, model: Array) -> float:
        """Mean logistic loss of a fixed model over the whole training stream."""
        total, items = 0.0, 0
        for chunks in Prefixes(self.source, self.batch_bytes).batches:
            for chunk in chunks:
                labels, cells = self._rows(chunk)
                z = np.where(labels, 1.0, -1.0) * (model[0] + model[cells].sum(axis=1))
                total += float(np.logaddexp(0.0, -z).sum())
                items += len(labels)
        return total / items

    @cached_property
    def _test(self) -> tuple[Array, Array]:
        parts = [self._rows(chunk) for chunk in self._test_chunks]
        return np.concatenate([labels for labels, _ in parts]), np.concatenate([cells for _, cells in parts])

    def _rows(self, chunk: NumberedChunk) -> tuple[Array, Array]:
        features = self.learner.features
        (items,) = self.source.read(chunk)
        return features.labels(items).astype(bool), features.cells_of(items)
