"""What trials are made of: when failures happen, which results they have touched, what is said of many seeds."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from afspark.bench.accuracy.campaign import summary
from afspark.bench.accuracy.hitters import HeavyHitterStudy
from afspark.bench.accuracy.join_accuracy import JoinStudy
from afspark.bench.accuracy.prefixes import Prefixes
from afspark.bench.accuracy.regression_accuracy import RegressionStudy
from afspark.bench.accuracy.trial import (
    BATCHES,
    FAILURES,
    AccuracyStudy,
    Outcome,
    failures_before,
    injected_failures,
    is_scored,
)
from afspark.protocol.fault_plan import FaultPhase, InjectedFailure


@pytest.mark.parametrize("seed", range(30))
def test_every_second_batch_fails_once_and_the_last_never(seed: int) -> None:
    plan = injected_failures(seed)
    assert [(inject_failure.batch - 1) // 2 for inject_failure in plan] == list(range(FAILURES))
    assert (
        min(inject_failure.batch for inject_failure in plan) > 0
        and max(inject_failure.batch for inject_failure in plan) < BATCHES - 1
    )
    assert failures_before(0, plan) == 0 and failures_before(BATCHES - 1, plan) == FAILURES


def test_seeds_differ_and_all_phases_occur() -> None:
    plans = [injected_failures(seed) for seed in range(20)]
    assert len({tuple(plan) for plan in plans}) == 20
    assert {inject_failure.phase for plan in plans for inject_failure in plan} == set(FaultPhase)


@pytest.mark.parametrize(
    ("phase", "seen"), [(FaultPhase.APPLYING, 1), (FaultPhase.COMMITTING, 0), (FaultPhase.COMMITTED, 0)]
)
def test_a_failure_after_the_results_shows_in_the_next_ones(phase: FaultPhase, seen: int) -> None:
    plan = [InjectedFailure(3, phase)]
    assert failures_before(3, plan) == seen and failures_before(4, plan) == 1


def test_results_are_scored_before_the_next_failure_and_at_the_end() -> None:
    plan = [InjectedFailure(2, FaultPhase.APPLYING), InjectedFailure(3, FaultPhase.COMMITTED)]
    assert [batch for batch in range(BATCHES) if is_scored(batch, plan)] == [1, 3, BATCHES - 1]
    assert all(is_scored(batch, []) for batch in range(BATCHES))


def outcome(seed: int, score: float, held: float = 1.0) -> Outcome:
    batches = [{"batch": float(at), "failures": float(at), "score": score} for at in range(FAILURES + 1)]
    return Outcome(seed, batches, {"observed": score, "realised": 1, "promised": 2, "held": held}, [0.1])


@pytest.mark.parametrize(("study", "worst"), [(HeavyHitterStudy, 0.8), (JoinStudy, 0.9)])
def test_the_worst_seed_is_that_of_the_measure(study: type[AccuracyStudy], worst: float) -> None:
    told = summary(study(), [outcome(1, 0.8), outcome(2, 0.9, held=0.0)])
    assert told["by_failures"][FAILURES]["worst"] == worst
    assert told["by_failures"][FAILURES]["mean"] == pytest.approx(0.85)
    assert told["held"] == 1 and told["seeds"] == 2


def test_only_the_last_batch_before_the_next_failure_counts() -> None:
    batches = [{"batch": float(at), "failures": float(at // 2), "score": float(at)} for at in range(4)]
    assert [found["batch"] for found in Outcome(1, batches, {}, []).scores] == [1.0, 3.0]


def test_the_truth_about_a_join_is_the_plain_count_of_its_pairs() -> None:
    join = JoinStudy(rows_per_batch=1 << 15)
    sides = []
    for side in join.sides:
        chunks = Prefixes(side, join.batch_bytes).batches[:2]
        batches = [batch for chunk in chunks for one in chunk for batch in side.read(one)]
        rows = [zip(batch["dst"].to_pylist(), batch["second"].to_pylist(), strict=True) for batch in batches]
        sides.append(Counter(row for part in rows for row in part))
    pairs, samples = join._truth[1]
    assert pairs == sum(count * sides[1][row] for row, count in sides[0].items()) > 0
    assert samples == pytest.approx(0.1 * 4 * (1 << 15), rel=0.1)


def test_a_model_of_zeros_predicts_the_rarer_label_never() -> None:
    study = RegressionStudy(rows_per_batch=1 << 15, test_rows=1 << 15)
    empty = pa.table({"index": pa.array([], pa.int64()), "weight": pa.array([], pa.float64())})
    labels, _ = study._test
    assert study.score(empty, 0)["score"] == pytest.approx(1 - labels.mean())
