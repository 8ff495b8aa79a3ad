"""What keeping the divergence costs, next to the updates."""

from __future__ import annotations

from typing import Any

from afspark.bench.divergencecost import upkeep
from afspark.bench.markdown import table
from afspark.bench.rig import Rig

TITLE = "What keeping the divergence costs"


def measure(rig: Rig) -> dict[str, Any]:
    """Measures the states alone, without Spark."""
    return {"states": upkeep()}


def page(found: dict[str, Any]) -> str:
    text = (
        "One core, a million updates a transaction; the share is the time to fold them into the divergence over the "
        "time of the updates.\n\n"
    )
    rows = [
        [row["state"], row["divergence"], f"{row['million_updates_per_second']:,.1f}", f"{row['upkeep_share']:.0%}"]
        for row in found["states"]
    ]
    return text + table(["state", "divergence", "million updates a second", "upkeep"], rows)
