"""One stream with ten system failures, its results scored before every next failure.

The input is generated and the same for all trials, so that what a batch's results should be is known: failures are
what differs. They happen at random moments drawn from the trial's seed, one in every second batch.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure

FAILURES = 10
#: one before the first failure, two for each, one after the last
BATCHES = 2 * FAILURES + 2
#: phases that lie before the results of a batch are handed out
_BEFORE_RESULTS = {FaultPhase.BETWEEN, FaultPhase.APPLYING, FaultPhase.BACKING_UP, FaultPhase.RECOVERING}


#: settings of the papers for counts and samples
PAPERS = {
    "Θ = 10⁵, L = 10³": af.Approximate(theta=1e5, items=1e3, unacked=1e3),
    "Θ = 10⁴, L = 10²": af.Approximate(theta=1e4, items=1e2, unacked=1e3),
}


class AccuracyStudy(ABC):
    """An algorithm over generated input, and the truth about it."""

    #: what the score is
    measure: ClassVar[str]
    #: whether a larger score is a better one
    more_is_better: ClassVar[bool]
    #: bytes of input in one batch
    batch_bytes: int
    #: items in the whole stream
    items: int
    tolerances: Mapping[str, af.Approximate]
    #: output mode in which a sink is called with every batch
    mode: ClassVar[str] = "complete"

    @abstractmethod
    def stream(self, spark: SparkSession, tolerance: af.Tolerance) -> af.StatefulStream:
        """The pipeline; its last operator's results are scored."""

    def collect(self, frame: DataFrame, query: af.Query) -> pa.Table:
        """The results that a sink is called for."""
        return frame.toArrow()

    @abstractmethod
    def score(self, results: pa.Table, batch: int) -> dict[str, float]:
        """How good the results are after that batch: ``score``, and whatever else is to be known."""

    @abstractmethod
    def verdict(self, query: af.Query, results: pa.Table, tolerance: af.Approximate) -> dict[str, float]:
        """After the last batch: what was observed, next to what is promised. ``held``: 1 if all promises were."""


@dataclass(frozen=True)
class Outcome:
    """The scores of batches, and the verdict at the end."""

    seed: int
    scored: Sequence[dict[str, float]]
    verdict: Mapping[str, float]
    recoveries: Sequence[float]

    @property
    def scores(self) -> list[dict[str, float]]:
        """After 0, 1, … failures, as of the last batch before the next one."""
        newest = {found["failures"]: found for found in self.scored}
        return [newest[count] for count in sorted(newest)]

    def to_json(self) -> dict[str, Any]:
        verdict, recoveries = dict(self.verdict), list(self.recoveries)
        return {"seed": self.seed, "scores": self.scores, "verdict": verdict, "recoveries": recoveries}


def injected_failures(seed: int, failures: int = FAILURES) -> list[InjectedFailure]:
    """One failure in every two batches: in which of them, and in which phase, the seed decides."""
    draw = random.Random(seed)
    return [
        InjectedFailure(2 * number + draw.choice((1, 2)), draw.choice(list(FaultPhase))) for number in range(failures)
    ]


def failures_before(results_of: int, plan: Sequence[InjectedFailure]) -> int:
    """How many failures had happened when the results of a batch were handed out."""
    return sum(
        failure.batch < results_of or (failure.batch == results_of and failure.phase in _BEFORE_RESULTS)
        for failure in plan
    )


def is_scored(batch: int, plan: Sequence[InjectedFailure]) -> bool:
    """Whether results are the last ones before the next failure, or the last of all; without failures all are."""
    return not plan or batch == BATCHES - 1 or failures_before(batch, plan) < failures_before(batch + 1, plan)


def trial(
    spark: SparkSession, study: AccuracyStudy, tolerance: af.Approximate, seed: int, failures: int = FAILURES
) -> Outcome:
    """Runs the stream once."""
    plan = injected_failures(seed, failures)
    scores: list[dict[str, float]] = []
    last: list[pa.Table] = []
    started: Future[af.Query] = Future()

    def take(frame: DataFrame, batch: int) -> None:
        if not is_scored(batch, plan):
            return
        last[:] = [study.collect(frame, started.result())]
        found = {"batch": float(batch), "failures": float(failures_before(batch, plan))}
        scores.append(found | study.score(last[0], batch))

    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        query = (
            study.stream(spark, tolerance)
            .writeStream.outputMode(study.mode)
            .foreachBatch(take)
            .option("checkpointLocation", checkpoint)
            .option("batchBytes", study.batch_bytes)
            .trigger(availableNow=True)
            .inject(FaultPlan(frozenset(plan), name=f"seed-{seed}"))
            .start()
        )
        started.set_result(query)
        query.awaitTermination()
        verdict = study.verdict(query, last[0], tolerance)
        recoveries = [one["recovery_seconds"] for one in query.ledger() if one["recovery_seconds"] is not None]
        query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return Outcome(seed, scores, verdict, recoveries)
