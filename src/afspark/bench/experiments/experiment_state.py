"""The state stage alone: cost by size of the table, memory, recovery."""

from __future__ import annotations

from typing import Any

from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.statecost import cost_by_size, recovery

TITLE = "The state stage alone"


def measure(rig: Rig) -> dict[str, Any]:
    """Measures the states alone, without Spark."""
    sizes = [10**4, 10**5, 10**6, 10**7]
    return {
        "cost_by_size": {kind: cost_by_size(sizes, key=kind) for kind in ("int64", "string")},
        "recovery": [recovery(10**5), recovery(10**6)],
    }


def page(found: dict[str, Any]) -> str:
    text = "One worker, 200,000 items a batch on random keys of tables of different sizes.\n\n"
    beyond = "bytes a key beyond its own"
    pairs = zip(found["cost_by_size"]["int64"], found["cost_by_size"]["string"], strict=True)
    text += table(
        ["keys", "64-bit keys, ms a batch", beyond, "words, ms a batch", beyond],
        [
            [
                f"{numbers['keys']:,}",
                f"{numbers['milliseconds']:.1f}",
                f"{numbers['bytes_per_key']:.0f}",
                f"{words['milliseconds']:.1f}",
                f"{words['bytes_per_key']:.0f}",
            ]
            for numbers, words in pairs
        ],
    )
    text += "Recovery of one worker, exact backups, words as keys: from the start of its task until its batch is applied.\n\n"
    rows = [
        [f"{row['keys']:,}", f"{row['task_seconds']:.2f}", f"{row['restore_seconds']:.2f}"] for row in found["recovery"]
    ]
    return text + table(["keys", "task, s", "of that restoring, s"], rows)
