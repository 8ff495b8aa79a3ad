"""States that lost workers leave on hosts that come back, and copies that a scheme has no use for: they are removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from afspark.coordinator.committer import Committer
from afspark.coordinator.replicas.left_states import AGAIN_SECONDS
from afspark.policies import BarrierSnapshot, MiniBatch, Nothing
from afspark.policies.replication import ActiveStandby, ColdStandby, Deployed, HotStandby, PassiveReplication
from afspark.resident import examine
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hurried, Rig, die
from tests.unit.runtime.test_secondaries import HOSTS, homes, secondaries

THREE = {**HOSTS, "c": 4}


class Later(Hurried):
    """A clock that can be put forward."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def folders(rig: Rig) -> set[tuple[str, int]]:
    """Host and worker of all states that there are."""
    found = rig.segments.glob("*/*/operator-[0-9]*")
    return {(path.parent.parent.name, int(path.name.rpartition("-")[2])) for path in found}


def needed(rig: Rig) -> set[tuple[str, int]]:
    states = {(home, worker) for worker, home in homes(rig).items()}
    return states | {(one.home, one.worker) for one in secondaries(rig) if one.holds_state}


@pytest.mark.parametrize("silent", [True, False])
@pytest.mark.parametrize(
    "tolerance",
    [ActiveStandby(batches=50), PassiveReplication(batches=2), BarrierSnapshot(batches=2)],
    ids=lambda one: one.name,
)
def test_a_host_that_is_back_keeps_nothing_that_nobody_goes_on_from(
    make_rig: MakeRig, tolerance: Any, silent: bool
) -> None:
    rig, truth = make_rig(batches=10, slots=THREE, tolerance=tolerance, keyed=True)
    rig.go(3)
    away = homes(rig)[0]
    slots = rig.hosts.slots[away]
    if silent:
        rig.hosts.silent.add(away)
    else:
        del rig.hosts.slots[away]
    rig.go(2)
    assert (away, 0) in folders(rig) - needed(rig)
    rig.hosts.silent.clear()
    rig.hosts.slots[away] = slots
    rig.go()
    assert folders(rig) == needed(rig)
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize(
    "after", [PassiveReplication(batches=2), Deployed(batches=2), MiniBatch()], ids=lambda one: one.name
)
@pytest.mark.parametrize("before", [ActiveStandby(batches=2), HotStandby(batches=2)], ids=lambda one: one.name)
def test_a_driver_with_another_scheme_keeps_no_copies(make_rig: MakeRig, before: Any, after: Any) -> None:
    rig, truth = make_rig(batches=8, slots=THREE, tolerance=before, keyed=True)
    rig.drive_and_die(lambda: rig.go(4, lambda batch: die() if batch == 3 else None))
    assert len(folders(rig)) == 4
    rig.start(tolerance=after)
    rig.go()
    assert folders(rig) == needed(rig) == {(home, worker) for worker, home in homes(rig).items()}
    assert rig.counts() == truth and rig.bound() == 0


def test_a_driver_finds_what_was_left_before_it(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=10, slots=THREE, tolerance=ColdStandby(batches=2), keyed=True)
    away: list[str] = []

    def script() -> None:
        rig.go(3)
        rig.hosts.slots.pop(homes(rig)[0])
        rig.go(3, lambda batch: die() if batch == 5 else None)

    rig.drive_and_die(script)
    rig.start()
    rig.go()
    assert not away and folders(rig) == needed(rig)
    assert rig.counts() == truth and rig.bound() == 0


def test_what_somebody_works_on_is_removed_later(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=12, slots=THREE, tolerance=PassiveReplication(batches=2), keyed=True)
    clock = rig.hosts.clock = Later()
    rig.go(3)
    away = homes(rig)[0]
    rig.hosts.silent.add(away)
    rig.go(2)
    (path,) = rig.segments.glob(f"{away}/*/operator-0")
    rig.hosts.silent.clear()
    with held(path):
        rig.go(2)
        assert path.exists()
    rig.go(1)
    assert path.exists(), "it is not tried with every batch"
    clock.ahead = AGAIN_SECONDS
    rig.go()
    assert not path.exists() and rig.counts() == truth


def held(path: Path) -> Any:
    """A task from before is at work on a state."""
    from afspark.resident.segment import Segment

    segment = Segment.open(path)
    assert segment is not None and examine(path)
    return segment.lock(0.0)


@pytest.mark.parametrize("after", [MiniBatch(), Nothing()], ids=lambda one: one.name)
def test_a_worker_that_begins_where_a_copy_of_it_was_left_keeps_its_state(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    """No record was written yet, so that it is of the same incarnation as the copy."""
    rig, truth = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=2), keyed=True)
    with monkeypatch.context() as patch:
        patch.setattr(Committer, "commit", lambda *_: die())
        rig.drive_and_die(rig.go)
    del rig.hosts.slots["a"]
    rig.start(tolerance=after)
    rig.go()
    assert rig.ledger == [] and rig.counts() == truth
