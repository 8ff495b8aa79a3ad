"""Approximation as a choice of the controller: workers change to it and back, and observed ≤ told ≤ promised."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from afspark.control import Scheme, Unreplicated
from afspark.policies import Adaptive
from afspark.policies.tolerance import Approximate
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_secondaries import HOSTS, lose_host, secondaries

pytestmark = pytest.mark.some(3)

THETA = 400.0

#: The controller looks once, and leaves the rest to the test.
STILL = Adaptive(theta=THETA, every=3600)


def protect(rig: Rig, protection: Scheme | Unreplicated, *workers: int) -> None:
    for worker in workers or (0, 1):
        rig.run_of().protect(worker, protection, None if protection is Unreplicated.APPROXIMATE else 0.001)


def thetas(rig: Rig) -> list[float]:
    """The thresholds in force."""
    group = rig.run_of().group
    return [max(group.budget_of(one.worker).theta(one.counted_failures).values()) for one in group.members]


def objects(rig: Rig) -> int:
    return sum(path.stat().st_size for path in rig.objects())


@pytest.mark.parametrize("keyed", [False, True])
def test_a_loss_under_it_is_within_theta(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=STILL, keyed=keyed)
    rig.go(2)
    assert thetas(rig) == [0.0, 0.0]
    protect(rig, Unreplicated.APPROXIMATE)
    rig.go(5)
    in_force = {one.protection for one in rig.run_of().protections().values()}
    assert in_force == {Unreplicated.APPROXIMATE} and secondaries(rig) == []
    before = thetas(rig)
    assert min(before) > 0
    rig.lose(0)
    rig.go(1)
    (entry,) = rig.ledger
    assert entry.loss.counted and entry.covered
    assert thetas(rig)[0] < before[0], "each counted failure halves what the next one may take"
    assert 0 < rig.bound() <= THETA
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= THETA


@pytest.mark.parametrize("keyed", [False, True])
def test_a_loss_under_it_is_told_with_gap_recovery_as_well(make_rig: MakeRig, keyed: bool) -> None:
    """The last batch has a record, so that no batch is left out; what is below the threshold is in no backup."""
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=replace(STILL, gap=True), keyed=keyed)
    rig.go(2)
    protect(rig, Unreplicated.APPROXIMATE)
    rig.go(5)
    rig.lose(0)
    rig.go()
    (entry,) = rig.ledger
    assert (entry.loss.gap_batches, entry.loss.counted, entry.covered) == (0, True, True)
    assert 0 < worst(truth, rig.counts()) <= rig.bound() <= THETA


def test_less_is_written_than_under_a_scheme(make_rig: MakeRig) -> None:
    def written(protection: Scheme | Unreplicated) -> int:
        rig, _ = make_rig(batches=12, slots=HOSTS, tolerance=STILL)
        rig.checkpoint = rig.root / f"checkpoint-{protection}"
        rig.go(2)
        protect(rig, protection)
        rig.go(2)
        before = objects(rig)
        rig.go()
        return objects(rig) - before

    assert written(Unreplicated.APPROXIMATE) < written(Scheme.PASSIVE_REPLICATION)


@pytest.mark.parametrize("scheme", [Scheme.ACTIVE_STANDBY, Scheme.HOT_STANDBY, Scheme.PASSIVE_REPLICATION])
def test_after_it_a_scheme_is_exact_again(make_rig: MakeRig, scheme: Scheme) -> None:
    """No secondary is built from a backup that lacks anything, and what was lost before stays told."""
    rig, truth = make_rig(batches=20, slots=HOSTS, tolerance=STILL, keyed=True)
    rig.go(2)
    protect(rig, Unreplicated.APPROXIMATE)
    rig.go(5)
    protect(rig, scheme)
    rig.go(5)
    rig.driver.commits.settle()
    assert {one.protection for one in rig.run_of().protections().values()} == {scheme}
    record = rig.driver.commits.records.covered.record
    assert record is not None and all(one.is_whole for one in record.operators["operator"].workers)
    rig.lose(0)
    rig.go(2)
    lose_host(rig, "a")
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0, "nothing was lost while it was approximate"


def test_a_loss_before_the_first_exact_backup_is_told(make_rig: MakeRig) -> None:
    """The scheme is wanted, and the newest record is still of the time before."""
    rig, truth = make_rig(batches=14, slots=HOSTS, tolerance=STILL, keyed=True, max_replay_seconds=1000.0)
    rig.go(2)
    protect(rig, Unreplicated.APPROXIMATE)
    rig.go(6)
    for worker in (0, 1):
        rig.run_of().protect(worker, Scheme.PASSIVE_REPLICATION, 3600.0)
    rig.lose(0)
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= THETA


@pytest.mark.some(2)
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_chosen_when_somebody_is_lost(make_rig: MakeRig, seed: int) -> None:
    dice = random.Random(seed)
    rig, truth = make_rig(batches=24, slots=HOSTS, tolerance=STILL, keyed=seed % 2 == 0)
    rig.go(1)
    for _ in range(10):
        protection = dice.choice([Unreplicated.APPROXIMATE, Unreplicated.APPROXIMATE, *Scheme])
        protect(rig, protection, *dice.choice([(0,), (1,), (0, 1)]))
        rig.go(dice.randint(1, 2))
        match dice.randint(0, 3):
            case 0:
                rig.lose(dice.randint(0, 1))
            case 1:
                lose_host(rig, dice.choice("ab"))
            case 2:
                rig.start().ready()
    rig.go()
    found = rig.counts()
    assert not found - truth and worst(truth, found) <= rig.bound() <= THETA


def test_a_started_driver_goes_on_with_it(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=STILL, keyed=True)

    def script() -> None:
        rig.go(2)
        protect(rig, Unreplicated.APPROXIMATE)
        rig.go(5, lambda batch: die() if batch == 6 else None)

    rig.drive_and_die(script)
    rig.lose(1)
    rig.start()
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= THETA


def test_the_promise_is_that_of_the_approximation() -> None:
    assert STILL.promise() == Approximate(THETA).promise() == THETA
