"""Logistic regression on Spark: one query, with a system failure in its middle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.cli.regression_command import batches
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.report.regression_text import relearn
from afspark.sources import Clicks
from tests.spark.streams import Place

BATCH_BYTES = 2 * 45 << 15
ITEMS = 4 * 2 << 15


def test_models_are_merged_and_fed_back_through_a_failure(spark: SparkSession, place: Place) -> None:
    curve: list[Any] = []
    features = af.Features(slots=50_000)
    stream = af.read_stream(spark).clicks(ITEMS, seed=2)
    merged = af.logistic_regression(stream, features=features, tolerance=af.Approximate(theta=2, items=1000))
    query = (
        merged.writeStream.outputMode("append")
        .foreachBatch(lambda rows, batch: curve.extend(rows.collect()))
        .option("checkpointLocation", str(place.checkpoint))
        .option("segments", str(place.segments))
        .option("batchBytes", BATCH_BYTES)
        .trigger(availableNow=True)
        .inject(FaultPlan(frozenset({InjectedFailure(2, FaultPhase.BETWEEN)})))
        .start()
    )
    query.awaitTermination()

    source = Clicks(ITEMS, seed=2)
    exact = relearn(source, batches(source, BATCH_BYTES, 2), features.fitted(source.schema()), 1.0)
    (told,) = query.results("local").collect()
    rows = query.results("global").toArrow()
    model = np.zeros(50_001)
    model[rows.column("index").to_numpy()] = rows.column("weight").to_numpy()

    assert [row.items for row in curve] == [2 << 15] * 4
    assert curve[-1].prediction_rate > curve[0].prediction_rate
    assert told.prediction_rate > told.base_rate + 0.05
    assert told.prediction_rate == pytest.approx(exact.prediction_rate, abs=0.039)
    assert {entry["operator"] for entry in query.ledger()} == {"local", "global"}
    assert 0 < np.linalg.norm(model - exact.model) < 0.2 * np.linalg.norm(exact.model)
    assert 0 < query.bounds("local")["model"] <= 1.0
    query.release()
