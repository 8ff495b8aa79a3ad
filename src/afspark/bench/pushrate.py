"""Pushed items: how many are accepted, acknowledged and counted a second, and how long an acknowledgement takes.

One process pushes, the driver receives, two workers count: all on the cores of one machine. Items are counted as
processed when the batch that took them is committed; the first batches of a run are left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.pushing import BATCH_ROWS, SCHEMA

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

WARM_SECONDS = 2.0
PATIENCE_SECONDS = 240.0
#: the folder that holds the package
ROOT = Path(__file__).parents[2]


class CountKeys(af.Operator):
    """Counts items by key."""

    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)


def push(
    spark: SparkSession,
    tolerance: af.Tolerance,
    *,
    seconds: float = 8.0,
    rate: float = 0.0,
    rows: int = BATCH_ROWS,
    throttle: Mapping[str, float] | None = None,
    tick_seconds: float = 1.0,
) -> dict[str, float]:
    """One run of `CountKeys`; ``throttle``: options that make the backup store slower."""
    stream = af.read_stream(spark).pushed(SCHEMA, tick_seconds=tick_seconds)
    counted = stream.apply(CountKeys(), workers=2, tolerance=tolerance, keyed=False)
    return pushed_run(counted.writeStream, "keys", seconds=seconds, rate=rate, rows=rows, throttle=throttle)


def pushed_run(
    writer: af.StreamWriter,
    kind: str,
    *,
    seconds: float = 8.0,
    rate: float = 0.0,
    rows: int = 0,
    throttle: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """One run of any query with one pushed source, fed with items of a ``kind`` of `bench.pushing`."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-push-")
    try:
        writer = writer.option("checkpointLocation", checkpoint)
        for option, value in (throttle or {}).items():
            writer = writer.option(option, value)
        query = writer.start()
        try:
            return _measured(query, kind, seconds, rate, rows)
        finally:
            query.stop()
            query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _measured(query: af.Query, kind: str, seconds: float, rate: float, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", "afspark.bench.pushing", query.receivers[0], "--kind", kind, "--rows", str(rows)]
    inherited = [path for path in [os.environ.get("PYTHONPATH")] if path]
    producer = subprocess.Popen(
        # Until it is told to end; not for ever, should nobody be left to tell it.
        [*command, "--seconds", str(seconds + PATIENCE_SECONDS), "--rate", str(rate)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *inherited])},
    )
    try:
        _next_batch(query, 60.0)
        time.sleep(WARM_SECONDS)
        _next_batch(query, 60.0)
        first, began = query.totals.items, time.perf_counter()
        size, backups = query.totals.bytes, dict(query.totals.backups)
        while time.perf_counter() - began < seconds:
            time.sleep(0.02)
        _next_batch(query, 60.0)
        took = time.perf_counter() - began
        counted, size = query.totals.items - first, query.totals.bytes - size
        written = {name: query.totals.backups[name] - backups[name] for name in backups}
    finally:
        producer.terminate()
    out, _ = producer.communicate()
    told = json.loads(out)
    (stats,) = query.receiverStats().values()
    return {
        "items_per_second": counted / took,
        "mb_per_second": size / took / 1e6,
        "ack_p50_ms": 1000 * (told["latency_p50"] or 0.0),
        "ack_p99_ms": 1000 * (told["latency_p99"] or 0.0),
        "logged_share": stats["logged"] / max(1, stats["accepted"]),
        "backups": float(written["count"]),
        "backup_mb": written["bytes"] / 1e6,
        "backup_cells_per_item": written["cells"] / max(1, counted),
        "blocked_seconds": told["blocked_seconds"],
    }


def _next_batch(query: af.Query, patience: float) -> None:
    """Returns at the end of a batch that had items."""
    before, deadline = query.totals.items, time.perf_counter() + patience
    while query.totals.items == before:
        query.raise_failure()
        if time.perf_counter() > deadline:
            raise TimeoutError(f"No batch had items for {patience:g} s: {query.lastProgress}")
        time.sleep(0.002)
