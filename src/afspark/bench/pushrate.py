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

ROW_BYTES = 20
WARM_SECONDS = 2.0


class CountKeys(af.Operator):
    """Counts items by key."""

    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="int64", value="int64")}

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
    """One run; ``throttle``: options that make the backup store slower."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-push-")
    try:
        stream = af.read_stream(spark).pushed(SCHEMA, tick_seconds=tick_seconds)
        counted = stream.apply(CountKeys(), workers=2, tolerance=tolerance, keyed=False)
        writer = counted.writeStream.option("checkpointLocation", checkpoint)
        for option, value in (throttle or {}).items():
            writer = writer.option(option, value)
        query = writer.start()
        try:
            return _measured(query, seconds, rate, rows)
        finally:
            query.stop()
            query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def _measured(query: af.Query, seconds: float, rate: float, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", "afspark.bench.pushing", query.receivers[0], "--rows", str(rows)]
    root = Path(__file__).parents[1]
    producer = subprocess.Popen(
        [*command, "--seconds", str(seconds + WARM_SECONDS), "--rate", str(rate)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )
    while query.totals.items < rows:
        query.raise_failure()
        time.sleep(0.02)
    time.sleep(WARM_SECONDS)
    first, began = query.totals.items, time.perf_counter()
    backups = dict(query.totals.backups)
    while producer.poll() is None and time.perf_counter() - began < seconds:
        time.sleep(0.02)
    last = query.totals.items
    while query.totals.items == last and time.perf_counter() - began < 2 * seconds:
        time.sleep(0.005)  # to the end of a batch, as the beginning was
    took = time.perf_counter() - began
    counted = query.totals.items - first
    out, _ = producer.communicate()
    told = json.loads(out)
    (stats,) = query.receiverStats().values()
    return {
        "items_per_second": counted / took,
        "mb_per_second": counted * ROW_BYTES / took / 1e6,
        "ack_p50_ms": 1000 * (told["latency_p50"] or 0.0),
        "ack_p99_ms": 1000 * (told["latency_p99"] or 0.0),
        "logged_share": stats["logged"] / max(1, stats["accepted"]),
        "backups": float(query.totals.backups["count"] - backups["count"]),
        "blocked_seconds": told["blocked_seconds"],
    }
