"""How much of its kernel's speed an algorithm keeps as a stream."""

from __future__ import annotations

from typing import Any

from afspark.bench.alone import BarePart
from afspark.bench.kernelshare import STREAM, kernel_share
from afspark.bench.markdown import spread, table
from afspark.bench.rig import Rig

TITLE = "The share of the kernels"


def measure(rig: Rig) -> dict[str, Any]:
    """Grep, heavy hitters and logistic regression."""
    return {"algorithms": kernel_share(rig.spark, folder=rig.inputs, rounds=rig.rounds)}


def page(found: dict[str, Any]) -> str:
    text = (
        "The kernel is the operator's `process`, with its combiner, on Arrow data that is in memory already, in two "
        "processes on the two cores. Input alone is reading or generating the same items without the kernel; both are "
        "both without Spark. What both lack to the kernel is the input's, what the stream lacks to both is Spark's and "
        "the engine's: scheduling, backups, sinks. MB/s, in brackets the least and the most.\n\n"
    )
    head = ["algorithm", "MB a batch", *BarePart, STREAM, "stream / kernel", "stream / both"]
    rows = [
        [
            row["algorithm"],
            f"{row['batch_mb']:.0f}",
            *(spread(row["figures"][part]["mb_per_second"], "{:.0f}") for part in (*BarePart, STREAM)),
            f"**{row['share']:.2f}**",
            f"{row['stream / input and kernel']:.2f}",
        ]
        for row in found["algorithms"]
    ]
    return text + table(head, rows)
