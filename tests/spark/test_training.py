"""Workers train one model on Spark while batches are under way: with processes killed, and a model server."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.cli.regression_command import batches
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.report.regression_text import relearn
from afspark.sources import Clicks
from tests.spark.streams import Place

BATCH_BYTES = 2 * 45 << 15
ITEMS = 3 * 2 << 15
ITERATION = 10_000


def test_in_rounds_the_model_is_the_same_bit_for_bit_after_kills(spark: SparkSession, place: Place) -> None:
    # A model server on the host of an executor, and one beside the driver, which is killed.
    calm, curve = _trained(spark, Place(place.root / "calm"), FaultPlan(), servers_at="executors")
    failures = frozenset({InjectedFailure(1, FaultPhase.APPLYING), InjectedFailure(2, FaultPhase.BETWEEN)})
    disturbed, same = _trained(spark, place, FaultPlan(failures), kill_server=True)

    source = Clicks(ITEMS, seed=2)
    features = _features().fitted(source.schema())
    exact = relearn(source, batches(source, BATCH_BYTES, 2), features, 1.0, iteration=ITERATION)
    np.testing.assert_allclose(calm, exact.model, rtol=1e-9, atol=1e-12)
    assert calm.tobytes() == disturbed.tobytes()
    assert curve == same
    assert sum(row[3] for row in curve) == ITEMS
    assert all(row[2] > 0 for row in curve)


def _features() -> af.Features:
    return af.Features(slots=20_000)


def _trained(
    spark: SparkSession, place: Place, faults: FaultPlan, *, kill_server: bool = False, servers_at: str = "driver"
) -> tuple[np.ndarray, list[Any]]:
    curve: list[Any] = []

    def keep(rows: DataFrame, batch: int) -> None:
        found = sorted(tuple(row) for row in rows.collect())
        if not found or found[0] not in curve:
            curve.extend(found)
        if kill_server and batch == 0:
            os.kill(servers()[0].pid, signal.SIGKILL)

    model = af.train(
        af.read_stream(spark).clicks(ITEMS, seed=2),
        af.LogisticLearner(_features()),
        iteration=ITERATION,
        consistency=af.BSP(),
        workers=2,
        tolerance=af.MiniBatch(),
        servers=servers_at,
    )
    query = (
        model.writeStream.outputMode("append")
        .foreachBatch(keep)
        .option("checkpointLocation", str(place.checkpoint))
        .option("segments", str(place.segments))
        .option("batchBytes", BATCH_BYTES)
        .trigger(availableNow=True)
        .inject(faults)
        .start()
    )

    def servers() -> list[Any]:
        (found,) = query._engine._stages._servers._trained.values()
        return list(found.servers)

    query.awaitTermination()
    rows = query.results("global").toArrow()
    weights = np.zeros(20_001)
    weights[rows.column("index").to_numpy()] = rows.column("weight").to_numpy()
    query.stop()
    query.release()
    return weights, curve
