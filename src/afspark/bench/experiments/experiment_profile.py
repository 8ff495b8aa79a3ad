"""Where the time of a batch goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import afspark as af
from afspark.bench.batchprofile import profile
from afspark.bench.markdown import table
from afspark.bench.rig import Rig
from afspark.bench.workloads import HITTERS, WORDCOUNT, workloads

TITLE = "Where a batch's time goes"


def measure(rig: Rig) -> dict[str, Any]:
    """WordCount with results at the end and every batch, and heavy hitters."""
    loads = workloads(rig)
    words, heavy = loads[WORDCOUNT], loads[HITTERS]

    def every_batch() -> af.StreamWriter:
        return words.start(words.approximate).outputMode("update").format("noop")

    runs: dict[str, tuple[Callable[[], af.StreamWriter], int]] = {
        "WordCount, results at the end": (partial(words.start, words.approximate), words.batch_bytes),
        "WordCount, changed rows every batch": (every_batch, words.batch_bytes),
        "heavy hitters, results at the end": (partial(heavy.start, heavy.approximate), heavy.batch_bytes),
    }
    # The first round is for the compilers of the JVM, which take the workers' cores meanwhile.
    for _ in range(2):
        found = {name: profile(writer, size) for name, (writer, size) in runs.items()}
    return found


def page(found: dict[str, Any]) -> str:
    text = (
        "Milliseconds a batch, medians; workers' parts are those of the slower one. "
        "What is outside workers in the stages is Spark's scheduling, starting Python tasks and, with rows every batch, "
        "reading and combining on the sending side and the shuffle.\n\n"
    )
    names = list(found)
    return text + table(
        ["part", *names], [[part, *(f"{found[name][part]:.0f}" for name in names)] for part in found[names[0]]]
    )
