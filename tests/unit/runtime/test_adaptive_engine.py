"""The controller on a running query: what it decides is carried out, and whoever is lost meanwhile, nothing is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from afspark.control import Scheme
from afspark.control.costs import RARELY
from afspark.policies import Adaptive, Costs
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hurried, Rig, die
from tests.unit.runtime.test_secondaries import HOSTS, lose_host

#: looks at every batch, and has no reason to wait
EAGER: dict[str, Any] = {"every": 0.5, "cooldown": 0.0}


class LongBatches(Hurried):
    """Every batch takes two seconds more than it does."""

    later = 0.0

    def time(self) -> float:
        return super().time() + self.later

    def monotonic(self) -> float:
        return super().monotonic() + self.later


def adaptive_rig(make_rig: MakeRig, adaptive: Adaptive, batches: int) -> tuple[Rig, Counter[str]]:
    rig, truth = make_rig(batches=batches, slots=HOSTS, tolerance=adaptive, keyed=True)
    rig.hosts.clock = LongBatches()
    rig.hosts.detection_seconds = lambda: 0.5
    return rig, truth


def go(rig: Rig, batches: int | None = None) -> None:
    rig.go(batches, lambda _: later(rig))


def later(rig: Rig) -> None:
    rig.hosts.clock.later += 2.0


def wanted(rig: Rig) -> set[str]:
    return {str(unit.protection) for unit in rig.run_of().group.secondaries.units.values()}


def test_workers_start_with_active_replication_and_move_to_what_is_cheaper(make_rig: MakeRig) -> None:
    adaptive = Adaptive(recovery_seconds=3600, costs=Costs(cpu=1, memory=1, network=1, hosts=10), **EAGER)
    rig, truth = adaptive_rig(make_rig, adaptive, 16)
    go(rig, 1)
    assert rig.driver.control.decisions()[0]["to"] == Scheme.ACTIVE_REPLICATION
    go(rig, 5)
    lose_host(rig, "a")
    go(rig, 5)
    # Once a checkpoint was measured, a limit of an hour leaves no reason to pay for a second copy.
    assert not wanted(rig) & {Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY, Scheme.HOT_STANDBY}
    lose_host(rig, "b")
    go(rig)
    assert rig.counts() == truth and rig.bound() == 0
    assert all(entry.recovery is not None for entry in rig.ledger)


def test_a_limit_that_nothing_keeps_is_said_and_active_replication_runs(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig, truth = adaptive_rig(make_rig, Adaptive(recovery_seconds=1e-6, **EAGER), 8)
    go(rig, 3)
    lose_host(rig, "a")
    go(rig, 3)
    assert wanted(rig) == {Scheme.ACTIVE_REPLICATION}
    assert "nothing recovers within 1e-06 s" in caplog.text
    go(rig)
    assert rig.counts() == truth


def apart(rig: Rig) -> set[float]:
    """How many seconds checkpoints are apart."""
    return {one.barrier_seconds for one in rig.run_of().group.secondaries.barriers}


def test_checkpoints_are_frequent_until_a_new_secondary_stands(make_rig: MakeRig) -> None:
    """Otherwise another failure would leave all since the last one to replay."""
    rig, truth = adaptive_rig(make_rig, Adaptive(recovery_seconds=1e-6, **EAGER), 16)
    go(rig, 5)
    assert wanted(rig) == {Scheme.ACTIVE_REPLICATION} and apart(rig) == {RARELY}
    told = rig.driver.control.estimates(rig.run_of())
    assert {(one["in_force"]["protection"], one["in_force"]["interval"]) for one in told} == {
        (Scheme.ACTIVE_REPLICATION, RARELY)
    }
    lose_host(rig, "a")
    rig.hosts.slots = {"b": 4}
    go(rig, 4)
    assert wanted(rig) == {Scheme.ACTIVE_REPLICATION} and apart(rig) == {1.0}
    rig.driver.commits.settle()
    assert rig.committed - rig.driver.commits.records.covered.batch <= 1
    told = rig.driver.control.estimates(rig.run_of())
    assert {one["in_force"]["protection"] for one in told} == {Scheme.PASSIVE_REPLICATION}, "nobody follows"
    assert {two["protection"] for one in told for two in one["candidates"] if two["in_force"]} == {
        Scheme.PASSIVE_REPLICATION
    }
    rig.hosts.slots = HOSTS
    go(rig, 4)
    assert apart(rig) == {RARELY}
    go(rig)
    assert rig.counts() == truth


def test_what_was_decided_outlives_the_driver(make_rig: MakeRig) -> None:
    rig, truth = adaptive_rig(make_rig, Adaptive(recovery_seconds=3600, **EAGER), 14)

    def script() -> None:
        go(rig, 5)
        lose_host(rig, "a")
        go(rig, 4)
        rig.driver.control.close()
        rig.go(2, lambda batch: die())

    rig.drive_and_die(script)
    rig.start()
    go(rig, 1)
    decided = {one["worker"]: one["to"] for one in rig.driver.control.decisions()}
    assert set(decided.values()) == wanted(rig) != {Scheme.ACTIVE_REPLICATION}
    go(rig)
    assert rig.counts() == truth and rig.bound() == 0
