"""Experiment 2: WordCount against Θ and L: throughput, recovery time, share of state and item backups."""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import afspark as af
from afspark.bench.drawing import Curve, grid
from afspark.bench.interleave import interleave
from afspark.bench.markdown import spread, table
from afspark.bench.pushedalgorithms import ALGORITHMS, FIGURE
from afspark.bench.pushing import kind_of
from afspark.bench.pushrate import pushed_run
from afspark.bench.rig import Rig
from afspark.protocol.fault_plan import FaultPlan
from afspark.sources import ZipfWords

TITLE = "WordCount against Θ and L (experiment 2)"
THETAS = (1.0, 10.0, 1e2, 1e3, 1e4, math.inf)
ITEMS = (1.0, 1e3, 1e5, 1e6, math.inf)
FIXED_THETA = 1e4
SECONDS = 4.0
RECOVERED_BYTES, RECOVERED_BATCHES, KILLS = 80_000_000, 10, 3


def measure(rig: Rig) -> dict[str, Any]:
    """Pushed lines: first with no limit on items and Θ from 1 up, then with Θ = 10⁴ and L from 1 up."""
    by_theta = interleave(
        {
            _text(theta): partial(_push, rig, af.Approximate(theta, items=math.inf, unacked=math.inf))
            for theta in THETAS
        },
        rounds=rig.rounds,
    )
    by_items = interleave(
        {_text(items): partial(_push, rig, af.Approximate(FIXED_THETA, items=items, unacked=1e6)) for items in ITEMS},
        rounds=rig.rounds,
    )
    return {
        "theta": by_theta.to_json(),
        "items": by_items.to_json(),
        "theta_ratio": {name: by_theta.ratio_spread(name, _text(math.inf), FIGURE) for name in by_theta.rounds},
        "items_ratio": {name: by_items.ratio_spread(name, _text(math.inf), FIGURE) for name in by_items.rounds},
        "recovery": {_text(theta): _recovery(rig, theta) for theta in THETAS if math.isfinite(theta)},
    }


def _push(rig: Rig, tolerance: af.Approximate) -> dict[str, float]:
    stream = af.read_stream(rig.spark).pushed(kind_of("lines").schema, tick_seconds=1.0)
    return pushed_run(ALGORITHMS["wordcount"].write(stream, tolerance), "lines", seconds=SECONDS)


def _recovery(rig: Rig, theta: float) -> dict[str, float]:
    """Seconds from the start of a worker's task until its state is back, over some system failures."""
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        words = af.read_stream(rig.spark).source(ZipfWords(RECOVERED_BYTES, seed=1))
        query = (
            words.apply(af.WordCount(), workers=2, tolerance=af.Approximate(theta))
            .writeStream.option("checkpointLocation", checkpoint)
            .option("batchBytes", RECOVERED_BYTES // RECOVERED_BATCHES)
            .trigger(availableNow=True)
            .inject(FaultPlan.seeded(KILLS, batches=RECOVERED_BATCHES, seed=1))
            .start()
        )
        query.awaitTermination()
        ledger = [entry for entry in query.ledger() if entry["recovery_seconds"] is not None]
        query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return {
        "seconds": statistics.median(entry["recovery_seconds"] for entry in ledger),
        "most": max(entry["recovery_seconds"] for entry in ledger),
        "cells": statistics.median(entry["restored_cells"] for entry in ledger),
    }


def _text(value: float) -> str:
    if math.isinf(value):
        return "∞"
    power = round(math.log10(value))
    return "1" if power == 0 else f"10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def page(found: dict[str, Any]) -> str:
    text = (
        "Pushed lines of text, two workers. Against Θ no item is backed up (L = ∞); against L, Θ is 10⁴ and Γ 10⁶. "
        "A state backup is a cell written, counted per word; an item backup a line written, as a share of the lines. A message has "
        "24,576 lines, so that L up to 10³ means that every line is logged or applied before it is acknowledged. Recovery: "
        f"{KILLS} system failures in a generated stream of {RECOVERED_BYTES // 1_000_000} MB, from the start of a "
        "worker's task until its state is restored.\n\n"
    )
    head = ["Θ", "M words/s", "/ ∞", "cells backed up per word", "recovery, s (most)", "cells restored"]
    rows = []
    for name, figures in found["theta"].items():
        back = found["recovery"].get(name)
        rows.append(
            [
                name,
                f"{figures[FIGURE]['median'] / 1e6:.2f}",
                spread(found["theta_ratio"][name], "{:.2f}"),
                f"{figures['backup_cells_per_item']['median']:.2%}",
                f"{back['seconds']:.2f} ({back['most']:.2f})" if back else "",
                f"{back['cells']:,.0f}" if back else "",
            ]
        )
    text += table(head, rows)
    rows = [
        [
            name,
            f"{figures[FIGURE]['median'] / 1e6:.2f}",
            spread(found["items_ratio"][name], "{:.2f}"),
            f"{figures['logged_share']['median']:.1%}",
        ]
        for name, figures in found["items"].items()
    ]
    return text + table(["L", "M words/s", "/ ∞", "lines logged"], rows)


def draw(found: dict[str, Any], path: Path) -> str:
    thetas = [_text(theta) for theta in THETAS if math.isfinite(theta)]
    x = [theta for theta in THETAS if math.isfinite(theta)]
    theta = found["theta"]
    panels = {
        "throughput / no state backups": [Curve("", x, [found["theta_ratio"][name]["median"] for name in thetas])],
        "cells backed up per word": [Curve("", x, [theta[name]["backup_cells_per_item"]["median"] for name in thetas])],
        "recovery, s": [Curve("", x, [found["recovery"][name]["seconds"] for name in thetas])],
    }
    grid(path, panels, title="WordCount against Θ", subtitle="L = ∞", xlabel="Θ")
    return "Throughput, state backups and recovery time of WordCount against Θ"
