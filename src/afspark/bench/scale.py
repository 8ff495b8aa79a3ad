"""Cost per item and resident memory over streams of very different lengths: both should be constants.

Heavy hitters over generated packets: the input costs no disk, and the state has a fixed size, so that whatever grows
is the engine's. Nothing fails. The first two batches warm up and count nowhere.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.seen_batches import SeenBatches
from afspark.bench.watched_run import watched_run

SIZES = (10**7, 10**8, 10**9)
WARM_ROWS = 10**7
ROW_BYTES = 24
#: The same for all: ten to the seventh takes five batches, ten to the ninth 477. A whole number of chunks.
BATCH_ROWS = 1 << 21
TENTHS = 10


def scale(spark: SparkSession, sizes: Sequence[int] = SIZES, batch_rows: int = BATCH_ROWS) -> list[dict[str, Any]]:
    """A row for each number of items: nanoseconds an item over all and in consecutive tenths of the stream, and the
    bytes of states, of the workers' and the driver's own memory, and of the checkpoint. A short stream runs before.
    """
    _run(spark, WARM_ROWS, batch_rows)
    return [_run(spark, size, batch_rows) for size in sizes]


def _run(spark: SparkSession, rows: int, batch_rows: int) -> dict[str, Any]:
    operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=1_000_000_000)
    stream = af.read_stream(spark).packets(rows).apply(operator, workers=2, tolerance=af.Approximate(theta=100_000))
    watch = _Watch()
    with watched_run(stream.writeStream, watch, batch_bytes=batch_rows * ROW_BYTES) as ended:
        checkpoint_bytes = sum(file.stat().st_size for file in ended.checkpoint.rglob("*") if file.is_file())
    return {"items": rows, "checkpoint_bytes": checkpoint_bytes, **watch.figures()}


class _Watch(SeenBatches):
    """What was seen of a running query: every batch once, and its processes' memory at that time."""

    def __init__(self) -> None:
        super().__init__()
        self.resident: list[dict[str, int]] = []

    def look(self, query: af.Query) -> None:
        super().look(query)
        self.resident.append({"workers": sum(map(_resident, _python_children())), "driver": _resident(os.getpid())})

    def figures(self) -> dict[str, Any]:
        measured = self.measured
        tenth = -(-len(measured) // TENTHS)
        tenths = [measured[start : start + tenth] for start in range(0, len(measured), tenth)]
        return {
            "batches": len(self.batches),
            "nanoseconds_per_item": self._cost(measured),
            "worker_nanoseconds_per_item": self._worker_cost(measured),
            "tenths": [self._cost(batches) for batches in tenths],
            "worker_tenths": [self._worker_cost(batches) for batches in tenths],
            "state_bytes": [self.batches[batches[-1]]["state"]["bytes"] for batches in tenths],
            "resident_bytes": {name: [one[name] for one in self._over_time()] for name in self.resident[0]},
        }

    def _cost(self, batches: Sequence[int]) -> float:
        """Nanoseconds an item; the median batch, so that a neighbour on the machine counts little."""
        return statistics.median(self.seconds[batch] / self.batches[batch]["items"] for batch in batches) * 1e9

    def _worker_cost(self, batches: Sequence[int]) -> float:
        """What both workers together spend on an item, its backup included."""
        spent = [
            sum(sum(worker["seconds"].values()) for worker in self.batches[batch]["workers"])
            / self.batches[batch]["items"]
            for batch in batches
        ]
        return statistics.median(spent) * 1e9

    def _over_time(self) -> list[dict[str, int]]:
        step = max(1, len(self.resident) // TENTHS)
        return self.resident[step - 1 :: step]


def _python_children() -> list[int]:
    """Python processes below this one: Spark's workers and what they are forked from."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            before, _, after = entry.read_text().rpartition(")")
        except OSError:
            continue
        pid = int(entry.parent.name)
        names[pid], parents[pid] = before.partition("(")[2], int(after.split()[1])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return [pid for pid in below - {os.getpid()} if names[pid].startswith("python")]


def _resident(pid: int) -> int:
    """Anonymous memory in bytes, shared pages by their share; segments are mapped files and counted as states."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:")), 0)
