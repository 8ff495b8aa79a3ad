"""Cost per item and memory from 10^7 to 10^9 items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from afspark.bench.drawing import Curve, grid
from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.scale import scale

TITLE = "From 10⁷ to 10⁹ items"


def measure(rig: Rig) -> dict[str, Any]:
    """Heavy hitters over generated packets."""
    return {"sizes": scale(rig.spark)}


def page(found: dict[str, Any]) -> str:
    text = (
        "Heavy hitters over generated packets, two million in a batch, approximate, no failures. Nanoseconds an item are "
        "those of the median batch; of the workers: what both spend on it. Memory is private memory of the Python "
        "workers and the driver, at the first tenth of the stream and at the last.\n\n"
    )
    head = ["items", "batches", "ns an item", "of the workers", "first tenth → last", "state", "workers", "driver"]
    rows = [
        [
            f"{row['items']:,}",
            row["batches"],
            f"{row['nanoseconds_per_item']:.1f}",
            f"{row['worker_nanoseconds_per_item']:.1f}",
            f"{row['tenths'][0]:.1f} → {row['tenths'][-1]:.1f}",
            f"{row['state_bytes'][-1] / 1e6:.1f} MB",
            *(f"{_ends(row['resident_bytes'][who])} MB" for who in ("workers", "driver")),
        ]
        for row in found["sizes"]
    ]
    return text + table(head, rows)


def _ends(values: list[int]) -> str:
    return f"{values[0] / 1e6:.0f} → {values[-1] / 1e6:.0f}"


def draw(found: dict[str, Any], path: Path) -> str:
    last = found["sizes"][-1]
    memory = [
        Curve(who, [100 * (place + 1) / len(values) for place in range(len(values))], [value / 1e6 for value in values])
        for who, values in last["resident_bytes"].items()
    ]
    tenths = [10 * (place + 1) for place in range(len(last["tenths"]))]
    cost = [Curve("batch", tenths, last["tenths"]), Curve("workers", tenths, last["worker_tenths"])]
    title = f"{last['items']:,} items"
    grid(
        path,
        {"ns an item": cost, "memory, MB": memory},
        title=title,
        subtitle="by part of the stream, %",
        xlabel="% of the stream",
        logx=False,
    )
    return "Cost of an item and memory over a stream of a thousand million items"
