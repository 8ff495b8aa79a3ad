"""How fast pushed items are accepted, acknowledged and counted, and how long an acknowledgement takes."""

from __future__ import annotations

from functools import partial
from typing import Any

import afspark as af
from afspark.bench.interleave import interleave
from afspark.bench.markdown import spread, table
from afspark.bench.pushrate import push
from afspark.bench.rig import STORES, Rig

TITLE = "Pushed items: rate and acknowledgements"
FIGURE = "items_per_second"


def measure(rig: Rig) -> dict[str, Any]:
    """Rows of 20 bytes, counted by key, on the fastest and the slowest store; acknowledgements at half load."""
    approximate = af.Approximate(theta=100_000, items_seconds=4.0, unacked=4_000_000)
    schemes: dict[str, af.Tolerance] = {"none": af.Nothing(), "approximate": approximate}
    found: dict[str, Any] = {}
    fastest, *_, slowest = STORES
    for store in (fastest, slowest):
        runs = {name: partial(push, rig.spark, one, throttle=STORES[store]) for name, one in schemes.items()}
        contest = interleave(runs, rounds=rig.rounds)
        found[store] = {
            "figures": contest.to_json(),
            "ratio": contest.ratio_spread("approximate", "none", FIGURE),
        }
    rate = found[fastest]["figures"]["approximate"][FIGURE]["median"] / 2
    half = [push(rig.spark, approximate, rate=rate, rows=rows) | {"rows": rows} for rows in (16_384, 65_536)]
    return {"stores": found, "half load": half}


def page(found: dict[str, Any]) -> str:
    text = (
        "Rows of 20 bytes in messages of 65,536 from one producer process, received in the driver, counted by key by two "
        "workers, all on the same two cores. Approximate: Θ = 10⁵, L = 4 s of stream, Γ = 4·10⁶.\n\n"
    )
    head = ["store", "scheme", "million items/s", "MB/s", "logged", "backups", "ack p99, ms"]
    rows = [
        [
            store,
            name,
            spread(figures[FIGURE], "{:.2f}", 1e-6),
            f"{figures['mb_per_second']['median']:.0f}",
            f"{figures['logged_share']['median']:.0%}",
            f"{figures['backups']['median']:.0f}",
            f"{figures['ack_p99_ms']['median']:.0f}",
        ]
        for store, part in found["stores"].items()
        for name, figures in part["figures"].items()
    ]
    text += table(head, rows)
    for store, part in found["stores"].items():
        text += f"- approximate / none, {store}: **{spread(part['ratio'], '{:.2f}')}**\n"
    rows = [
        [
            f"{run['rows']:,}",
            f"{run[FIGURE] / 1e6:.2f}",
            f"{run['ack_p50_ms']:.1f}",
            f"{run['ack_p99_ms']:.1f}",
            f"{run['logged_share']:.0%}",
        ]
        for run in found["half load"]
    ]
    head = ["rows in a message", "million items/s", "ack p50, ms", "ack p99, ms", "logged"]
    return text + "\nAt half the load of the local disk (approximate):\n\n" + table(head, rows)
