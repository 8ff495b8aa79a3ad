"""What the state stage costs without Spark: by size of the table, in memory, and to recover."""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.model.operator import Operator
from afspark.model.states import HashTable, StateSpec
from afspark.numbers import FIRST_INCARNATION, NO_FENCE, Batch
from afspark.policies import RestoreChain, ThresholdBackup
from afspark.protocol.fault_plan import FaultPlan
from afspark.protocol.lifecycle import Hint
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentRoot
from afspark.store import ObjectRef, open_store
from afspark.task.feed import Feed
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.worker import serve

ITEMS = 200_000
HOST = "bench"


class Sum(Operator):
    """Sums values by a 64-bit key or by a word."""

    def __init__(self, key: str) -> None:
        self.kind = key

    def states(self) -> Mapping[str, StateSpec]:
        return {"sums": HashTable(key=self.kind, value="int64", divergence="max")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("key"), items.column("value"))


class StageCost:
    """The state stage of one worker, batch after batch, as its task runs it."""

    def __init__(self, folder: str, key: str, theta: float) -> None:
        self.operator = Sum(key)
        self.config = OperatorConfig(
            query_id="bench",
            fingerprint="bench",
            operator_name="sum",
            workers=1,
            checkpoint=folder,
            store=open_store(f"{folder}/store"),
            epoch="00000001-0123456789abcdef",
            segments=None,
            emit=False,
            faults=FaultPlan(),
        )
        self.theta = theta
        self.batch = 0

    def run(self, items: pa.RecordBatch, hint: Hint = Hint.RESUME, **changes: Any) -> tuple[float, TaskReport]:
        request = TaskRequest(
            worker=0,
            batch=Batch(self.batch),
            incarnation=FIRST_INCARNATION,
            hint=Hint.CREATE if self.batch == 0 else hint,
            fence=NO_FENCE,
            home=HOST,
            backup=ThresholdBackup(theta={"sums": self.theta}),
        )
        feed = Feed([("", Ingest(GivenPackets([Packet(items)]), ()))])
        started = time.perf_counter()
        report = serve(LocalEnvironment(name=HOST), self.config, replace(request, **changes), self.operator, feed)
        seconds = time.perf_counter() - started
        if report.status is not Status.APPLIED:
            raise RuntimeError(f"{report.status}: {report.detail} {report.error}")
        self.batch += 1
        return seconds, report


def batch_of(keys: np.ndarray[Any, Any], kind: str) -> pa.RecordBatch:
    column = pa.array(keys) if kind == "int64" else pa.array(keys).cast(pa.string())
    return pa.record_batch({"key": column, "value": pa.array(np.ones(len(keys), np.int64))})


def cost_by_size(sizes: list[int], *, key: str = "string", rounds: int = 9) -> list[dict[str, float]]:
    """Seconds for a batch of 200,000 items on tables of different sizes; only the state stage."""
    rows = []
    draw = np.random.default_rng(0)
    for size in sizes:
        folder = tempfile.mkdtemp(prefix="afspark-bench-")
        stage = StageCost(folder, key, theta=10_000.0)
        try:
            for start in range(0, size, 1_000_000):
                report = stage.run(batch_of(np.arange(start, min(start + 1_000_000, size)), key))[1]
            batches = [batch_of(draw.integers(0, size, ITEMS), key) for _ in range(rounds)]
            seconds = [stage.run(batch)[0] for batch in batches]
            rows.append(
                {
                    "keys": size,
                    "milliseconds": statistics.median(seconds) * 1000,
                    "bytes_per_key": (report.memory - key_bytes(size, key)) / size,
                }
            )
        finally:
            _remove(stage, folder)
    return rows


def key_bytes(size: int, kind: str) -> int:
    return 8 * size if kind == "int64" else sum(len(str(n)) for n in range(size))


def recovery(keys: int, *, rounds: int = 5) -> dict[str, float]:
    """Seconds from the start of a recovering worker's task until it has applied its batch."""
    folder = tempfile.mkdtemp(prefix="afspark-bench-")
    stage = StageCost(folder, "string", theta=0.0)
    try:
        backups: list[ObjectRef] = []
        for start in range(0, keys, 100_000):
            backups += stage.run(batch_of(np.arange(start, min(start + 100_000, keys)), "string"))[1].backups
        few = batch_of(np.arange(1000), "string")
        seconds, restoring = [], []
        for incarnation in range(1, rounds + 1):
            took, report = stage.run(
                few, Hint.RECOVER, incarnation=incarnation, recovery=RestoreChain(chain=tuple(backups))
            )
            backups += report.backups
            seconds.append(took)
            restoring.append(report.seconds["recovery"])
        return {
            "keys": keys,
            "task_seconds": statistics.median(seconds),
            "restore_seconds": statistics.median(restoring),
        }
    finally:
        _remove(stage, folder)


def _remove(stage: StageCost, folder: str) -> None:
    SegmentRoot(stage.config.segments, HOST).release("bench")
    shutil.rmtree(folder, ignore_errors=True)
