"""Runs in which one worker is lost right before a barrier: what it takes until the query is where it was."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.seen_batches import SeenBatches
from afspark.bench.streams import WARM_BATCHES
from afspark.bench.topology import AGGREGATE, RECORD_BYTES, one_aggregate, topology
from afspark.bench.watched_run import watched_run
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

#: more than any interval, so that barriers come where they are wanted
MAX_REPLAY_SECONDS = 120.0
AFTER = 3


@dataclass(frozen=True, kw_only=True)
class LossCase:
    """Which pipeline loses a worker, and how far apart barriers are.

    ``every``: batches between two barriers; ``alone``: one aggregate with one worker instead of the six operators.
    """

    keys: int
    every: int
    batch_records: int
    recovery: str = "partial"
    alone: bool = False

    @property
    def lost_in(self) -> int:
        """The batch that finds a worker lost: a barrier is due at its end, and the last one was ``every`` before."""
        return 2 * self.every

    @property
    def batches(self) -> int:
        return self.lost_in + AFTER

    def writer(self, spark: SparkSession, tolerance: af.Tolerance, batches: int) -> af.StreamWriter:
        build: Callable[..., af.StreamWriter] = one_aggregate if self.alone else topology
        return build(spark, tolerance, records=batches * self.batch_records, keys=self.keys)


def batches_between(interval: float, batch_seconds: float) -> int:
    """Batches between barriers that are about ``interval`` seconds apart; two at least, so that one is replayed.

    >>> batches_between(3.0, 0.5), batches_between(0.2, 0.5)
    (6, 2)
    """
    return max(2, round(interval / batch_seconds))


def usual_batch(spark: SparkSession, case: LossCase) -> dict[str, float]:
    """How long a batch takes while nothing fails."""
    seen = SeenBatches()
    writer = case.writer(spark, af.BarrierSnapshot(batches=case.every), case.batches)
    with watched_run(writer, seen, batch_bytes=case.batch_records * RECORD_BYTES):
        return {"batch": statistics.median(seen.seconds[batch] for batch in seen.measured)}


def lose_one(spark: SparkSession, case: LossCase) -> dict[str, float]:
    """Loses a worker's state and its process; the figures of `recovery_figures`."""
    seen = SeenBatches()
    failure = InjectedFailure(case.lost_in, FaultPhase.BETWEEN)
    tolerance = af.BarrierSnapshot(batches=case.every, recovery=case.recovery)
    plan = FaultPlan(frozenset({failure}), name="one", only=(AGGREGATE, 0))
    writer = case.writer(spark, tolerance, case.batches).inject(plan)
    options = {"maxReplaySeconds": MAX_REPLAY_SECONDS}
    with watched_run(writer, seen, batch_bytes=case.batch_records * RECORD_BYTES, options=options) as ended:
        return recovery_figures(seen.seconds, ended.query.ledger(), case)


def recovery_figures(
    seconds: Mapping[int, float], ledger: Sequence[Mapping[str, Any]], case: LossCase
) -> dict[str, float]:
    """Where the time of a recovery went, from the seconds of all batches and from the ledger.

    ``delay``: how much longer the batch took that found the loss. Operators are restored and replayed one after the
    other, their workers at once. ``input_seconds``: how long the replayed batches had taken at first.
    """
    normal = statistics.median(
        taken for batch, taken in seconds.items() if WARM_BATCHES <= batch != case.lost_in and batch % case.every
    )
    replayed = max(entry["replayed_batches"] for entry in ledger)
    again = range(case.lost_in - replayed, case.lost_in)
    # The first batches of a run take longer for reasons that do not come back.
    first = sum(seconds[batch] if batch >= WARM_BATCHES else normal for batch in again)
    restoring, replaying = (_one_after_the_other(ledger, name) for name in ("restore_seconds", "replay_seconds"))
    delay = seconds[case.lost_in] - normal
    return {
        "batch": normal,
        "interval": normal * case.every,
        "delay": delay,
        "restoring": restoring,
        "replaying": replaying,
        "rest": delay - restoring - replaying,
        "replayed_batches": float(replayed),
        "input_seconds": first,
        "speed": first / replaying if replaying else 0.0,
        "workers": float(len(ledger)),
        "restored_cells": float(sum(entry["restored_cells"] for entry in ledger)),
    }


def _one_after_the_other(ledger: Sequence[Mapping[str, Any]], name: str) -> float:
    longest: dict[str, float] = {}
    for entry in ledger:
        longest[entry["operator"]] = max(longest.get(entry["operator"], 0.0), entry[name])
    return sum(longest.values())
