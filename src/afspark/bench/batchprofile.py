"""Where the time of a batch goes, from Spark's progress and ours."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import afspark as af
from afspark.bench.streams import WARM_BATCHES

PARTS = (
    "spark bookkeeping",
    "stages: outside workers",
    "workers: read, combine, update",
    "workers: backup",
    "sink",
    "record",
)


def profile(writer: Callable[[], af.StreamWriter], batch_bytes: int) -> dict[str, float]:
    """Milliseconds a batch by part; workers' parts are those of the slowest worker."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        query = (
            writer()
            .option("checkpointLocation", checkpoint)
            .option("batchBytes", batch_bytes)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        durations = [p["durationMs"] for p in query.spark_query.recentProgress if "addBatch" in p["durationMs"]]
        seen = query.recentProgress
        query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return _medians([_parts(one, spark) for one, spark in zip(seen, durations, strict=True)][WARM_BATCHES:])


def _parts(progress: Mapping[str, Any], spark: Mapping[str, int]) -> dict[str, float]:
    workers = [worker["seconds"] for worker in progress["workers"]]
    process = max(seconds.get("process", 0.0) for seconds in workers) * 1000
    backup = max(seconds.get("backup", 0.0) for seconds in workers) * 1000
    ours = {name: seconds * 1000 for name, seconds in progress["parts"].items()}
    values = (
        spark["triggerExecution"] - progress["seconds"] * 1000,
        ours["stages"] - process - backup,
        process,
        backup,
        ours.get("sinks", 0.0),
        ours["record"],
    )
    return dict(zip(PARTS, values, strict=True)) | {"whole batch": float(spark["triggerExecution"])}


def _medians(batches: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(batch[name] for batch in batches) for name in batches[0]}
