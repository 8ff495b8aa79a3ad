"""The engine under every failure it promises to survive, with real kills and without a JVM."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from tests.unit.runtime.conftest import MakeRig

pytestmark = pytest.mark.some(3)


def worst(truth: Counter[str], got: Counter[str]) -> int:
    return max(abs(truth[word] - got[word]) for word in truth | got)


def plan(phase: FaultPhase, *batches: int) -> FaultPlan:
    return FaultPlan(frozenset(InjectedFailure(batch, phase) for batch in batches), "test")


@pytest.mark.parametrize(
    ("tolerance", "keyed"),
    [(Nothing(), False), (MiniBatch(), True), (Approximate(100.0), False), (Approximate(100.0), True)],
    ids=["none", "minibatch keyed", "approximate", "approximate keyed"],
)
def test_without_failures_every_policy_is_exact(make_rig: MakeRig, tolerance: Tolerance, keyed: bool) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed)
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == [] and rig.bound() == 0
    assert rig.delivered == list(range(6))


@pytest.mark.some(3)
@pytest.mark.parametrize("phase", FaultPhase)
def test_minibatch_is_exact_after_failures(make_rig: MakeRig, phase: FaultPhase) -> None:
    """Keyed: a stage that is tried again finds the exchange of the first try, and parts of the batch applied."""
    rig, truth = make_rig(tolerance=MiniBatch(), keyed=True, faults=plan(phase, 2, 3))
    rig.go()
    assert rig.counts() == truth
    assert {entry.loss.worker for entry in rig.ledger} == {0, 1}
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("phase", "keyed"),
    [*((phase, False) for phase in FaultPhase), (FaultPhase.BETWEEN, True), (FaultPhase.BACKING_UP, True)],
)
def test_approximate_stays_inside_its_bound(make_rig: MakeRig, phase: FaultPhase, keyed: bool) -> None:
    theta = 400.0
    rig, truth = make_rig(batches=8, tolerance=Approximate(theta), keyed=keyed, faults=plan(phase, 3, 5))
    rig.go()
    copies = 1 if keyed else 2
    assert rig.bound() == theta / 2 + theta / 4
    assert [member.failures for member in rig.members] == [2, 2]
    assert sum(e.loss.theta["counts"] for e in rig.ledger if e.loss.counted) == rig.bound() * 2 / copies
    assert 0 < worst(truth, rig.counts()) <= rig.bound()


def test_nothing_starts_empty(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Nothing(), faults=plan(FaultPhase.BETWEEN, 3))
    rig.go()
    assert rig.counts()["all"] == truth["all"] // 2
    assert rig.bound() == math.inf
    assert [(e.loss.worker, e.loss.batch) for e in rig.ledger] == [(0, 3), (1, 3)]
    assert rig.objects() == []
