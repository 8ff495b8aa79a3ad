"""The batches of a running query, each seen once: Spark and the query remember only the last hundred."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import afspark as af
from afspark.bench.streams import WARM_BATCHES


class SeenBatches:
    """``batches``: what the query told of each; ``seconds``: how long Spark was at it."""

    def __init__(self) -> None:
        self.batches: dict[int, Mapping[str, Any]] = {}
        self.seconds: dict[int, float] = {}

    def look(self, query: af.Query) -> None:
        """Takes up what is new; call it at least every hundred batches, and after the end."""
        self.batches |= {progress["batch"]: progress for progress in query.recentProgress}
        self.seconds |= {
            progress["batchId"]: progress["durationMs"]["triggerExecution"] / 1000
            for progress in query.spark_query.recentProgress
            if "addBatch" in progress["durationMs"]
        }

    @property
    def measured(self) -> list[int]:
        """The numbers of all batches but the first two, which warm up."""
        return sorted(self.batches.keys() & self.seconds.keys())[WARM_BATCHES:]


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least so many are not above: the 99th percentile of fifty is their largest.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5), percentile([1.0, 2.0], 0.99)
    (2.0, 2.0)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def costs(seen: SeenBatches, snapshots: Iterable[Mapping[str, Any]] = ()) -> dict[str, float]:
    """What a run has cost: its seconds, how long batches took, what was written, and how far apart.

    ``snapshots``: the query's history of them.
    """
    measured = seen.measured
    seconds = [seen.seconds[batch] for batch in measured]
    items = sum(seen.batches[batch]["items"] for batch in measured)
    written = [batch for batch in measured if seen.batches[batch]["backups"]["count"]]
    return {
        "seconds": sum(seconds),
        "records_per_second": items / sum(seconds),
        "batches": float(len(measured)),
        "batch": statistics.median(seconds),
        "p99_batch": percentile(seconds, 0.99),
        "longest_batch": max(seconds),
        "backups": float(len(written)),
        "skipped": float(sum(skipped["barriers"] for one in snapshots for skipped in one["skipped"])),
        "effective_interval": sum(seconds) / len(written) if written else 0.0,
        "backup_bytes": float(sum(seen.batches[batch]["backups"]["bytes"] for batch in measured)),
    }
