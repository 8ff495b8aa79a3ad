"""Failures as data: seeded, counted, each of them once."""

from __future__ import annotations

import os
import pickle
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from afspark.cluster.local.processes import KILLED, forked
from afspark.errors import UsageError
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.task.fault_injection import inject_failure


@pytest.mark.parametrize("failures", [1, 5, 10, 54])
def test_a_seed_gives_that_many_failures(failures: int) -> None:
    plan = FaultPlan.seeded(failures, batches=10, seed=7)
    assert len(plan.failures) == failures
    assert plan == FaultPlan.seeded(failures, batches=10, seed=7)
    assert {s.batch for s in plan.failures} <= set(range(1, 10))


def inject(plan: FaultPlan, batch: int, phase: FaultPhase, segment: Path) -> None:
    inject_failure(plan, batch, phase, segment, os.getpid())


def test_failures_are_spread_over_batches_first() -> None:
    for seed in range(20):
        per_batch = Counter(s.batch for s in FaultPlan.seeded(9, batches=10, seed=seed).failures)
        assert set(per_batch.values()) == {1}


def test_seeds_differ() -> None:
    assert len({FaultPlan.seeded(4, batches=10, seed=seed).failures for seed in range(20)}) > 10


def test_no_failures_need_no_batches() -> None:
    assert FaultPlan.seeded(0, batches=1, seed=0) == FaultPlan()


def test_more_failures_than_moments_are_refused() -> None:
    with pytest.raises(UsageError) as caught:
        FaultPlan.seeded(7, batches=2, seed=0)
    assert (caught.value.failures, caught.value.batches) == (7, 2)


def test_a_failure_during_recovery_has_one_before_it_too() -> None:
    plan = FaultPlan(frozenset({InjectedFailure(3, FaultPhase.RECOVERING)}))
    assert plan.fails_at(3, FaultPhase.BETWEEN) and plan.fails_at(3, FaultPhase.RECOVERING)
    assert not plan.fails_at(3, FaultPhase.APPLYING) and not plan.fails_at(2, FaultPhase.BETWEEN)


def test_a_plan_travels_with_tasks() -> None:
    plan = FaultPlan.seeded(5, batches=10, seed=1)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_a_failure_destroys_and_kills_once(tmp_path: Path) -> None:
    segment = tmp_path / "count-0"
    plan = FaultPlan(frozenset({InjectedFailure(2, FaultPhase.APPLYING)}), "p")
    segment.mkdir()
    inject(plan, 1, FaultPhase.APPLYING, segment)
    inject(plan, 2, FaultPhase.BETWEEN, segment)
    assert segment.exists()
    assert forked(lambda: inject(plan, 2, FaultPhase.APPLYING, segment)) == [(False, KILLED)]
    assert not segment.exists()
    segment.mkdir()
    inject(plan, 2, FaultPhase.APPLYING, segment)
    assert segment.exists()


def test_every_worker_fails_and_plans_keep_apart(tmp_path: Path) -> None:
    failures = frozenset({InjectedFailure(1, FaultPhase.BETWEEN)})
    for name, worker in [("p", 0), ("p", 1), ("q", 0)]:
        segment = tmp_path / f"count-{worker}"
        segment.mkdir(exist_ok=True)
        plan = FaultPlan(failures, name)
        assert forked(partial(inject, plan, 1, FaultPhase.BETWEEN, segment)) == [(False, KILLED)]
        assert not segment.exists()


def test_the_kill_is_a_real_one(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        inject(
            FaultPlan(frozenset({InjectedFailure(1, FaultPhase.BETWEEN)})),
            1,
            FaultPhase.BETWEEN,
            tmp_path / "x" / "count-0",
        )
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_a_plan_may_hit_one_worker_alone(tmp_path: Path) -> None:
    plan = FaultPlan(frozenset({InjectedFailure(1, FaultPhase.BETWEEN)}), only=("count", 1))
    assert [plan.hits("count", 0), plan.hits("count", 1), plan.hits("sum", 1)] == [False, True, False]
    assert FaultPlan(plan.failures).hits("sum", 7)
    assert not FaultPlan().hits("sum", 7), "nobody looks for the state of a worker that has nothing to fear"
