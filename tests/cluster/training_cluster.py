"""Workers on two hosts that train one model, and what happens to one, or to a server, in the middle of a step."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.algorithms.model_training import GLOBAL, LOCAL, GlobalModel, LocalTraining
from afspark.cluster.spark.anchors import slots_by_host
from afspark.cluster.spark.spark_host import executor_pid
from afspark.model.consistency import consistency_of
from afspark.model.learner import Learned
from afspark.sources.labelled_rows import HIGGS_BYTES
from tests.cluster.machines import HOSTS
from tests.spark.streams import Place

CHUNK, BATCHES, ITERATION = 1 << 15, 4, 1 << 13
ITEMS = 2 * CHUNK * BATCHES
STRIKE, SERVERS = "strike", "servers"
POLICIES: dict[str, af.Tolerance] = {
    "minibatch": af.MiniBatch(),
    "snapshot": af.BarrierSnapshot(batches=3),
    "approximate": af.Approximate(theta=0.5, items=100),
}


class StrickenTraining(LocalTraining):
    """In its third step of a batch, worker 1 does what a file tells it, once."""

    folder = ""

    def begin(self, states: Any, context: af.WorkerContext) -> None:
        super().begin(states, context)
        self._made = 0

    def _learn(self, items: pa.RecordBatch, seen: int) -> Learned:
        marker = Path(self.folder, STRIKE)
        self._made += 1
        if self.context.worker == 1 and self._made == 3 and marker.exists():
            what = json.loads(marker.read_text())
            marker.unlink()
            self._strike(**what)
        return super()._learn(items, seen)

    def _strike(self, kill: str, lose: str | None = None) -> None:
        if kill == SERVERS:
            for pid in json.loads(Path(self.folder, SERVERS).read_text()):
                os.kill(pid, signal.SIGKILL)
            return
        if lose is not None:
            shutil.rmtree(lose)
        executor = executor_pid()
        assert executor is not None
        os.kill(executor, signal.SIGKILL)
        time.sleep(60)


def _servers(query: af.Query) -> list[Any]:
    (trained,) = query._engine._stages._servers._trained.values()
    return list(trained.servers)


def carry_out_training(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """``strike``: in the middle of which batch something happens, and what: ``servers`` are killed, or the ``executor``
    of worker 1, or its ``host`` is lost.
    """
    place = Place(Path(request["place"]))
    at, what = request.get("strike", (None, ""))
    merged: dict[int, int] = {}
    while len(slots_by_host(spark.sparkContext)) < len(HOSTS):
        time.sleep(0.1)

    def deliver(rows: DataFrame, batch: int) -> None:
        merged[batch] = sum(row["items"] for row in rows.collect())
        (place.root / SERVERS).write_text(json.dumps([server.pid for server in _servers(query)]))
        if batch + 1 != at:
            return
        homes = query._engine.operator(LOCAL).homes
        told: dict[str, Any] = {"kill": SERVERS if what == "servers" else "executor"}
        if what == "host":
            told["lose"] = str(place.segments / homes[1])
        (place.root / "strike.part").write_text(json.dumps(told))
        (place.root / "strike.part").rename(place.root / STRIKE)

    learner = af.LogisticLearner()
    operator = StrickenTraining(
        learner,
        model=GLOBAL,
        iteration=ITERATION,
        consistency=consistency_of(request.get("consistency", "bsp")),
        servers=request.get("servers", "driver"),
    )
    operator.folder = str(place.root)
    tolerance = POLICIES[request["tolerance"][0]]
    stream = af.read_stream(spark).higgs(ITEMS, seed=2)
    trained = stream.apply(operator, name=LOCAL, workers=2, tolerance=tolerance)
    model = trained.apply(GlobalModel(learner), name=GLOBAL, workers=1, tolerance=tolerance, feeds_back=[LOCAL])
    query = (
        model.writeStream.outputMode("append")
        .foreachBatch(deliver)
        .option("checkpointLocation", str(place.checkpoint))
        .option("segments", str(place.segments))
        .option("batchBytes", 2 * CHUNK * HIGGS_BYTES)
        .option("hostGraceSeconds", request.get("grace", 30))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (counted,) = query.results(LOCAL).collect()
    return {
        "weights": {str(row["index"]): row["weight"].hex() for row in query.results(GLOBAL).collect()},
        "merged": [merged[batch] for batch in sorted(merged)],
        "items": counted["items"],
        "log_loss": counted["log_loss"],
        "held": query.convergence(GLOBAL)["held"],
        "ledger": query.ledger(),
        "struck": what and not (place.root / STRIKE).exists(),
        "servers": [urlsplit(server.address).hostname for server in _servers(query)],
    }
