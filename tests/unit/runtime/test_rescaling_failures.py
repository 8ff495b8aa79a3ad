"""Whatever dies while state is divided anew: the former workers are in force or the new ones, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
from typing import ClassVar

import pytest

from afspark import testing
from afspark.cluster.local.processes import KILLED, forked
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.rescaling.rescaling import numbers_found
from afspark.errors import CheckpointError
from afspark.model.windows import Hopping
from afspark.policies import ActiveStandby, Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.store import open_store
from afspark.store.epochs import newest_record
from afspark.store.local import LocalStore
from afspark.store.naming import FOLDER
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_planned_stop import stopped
from tests.unit.runtime.test_rescaling import ITEMS, assert_nothing_was_counted, drawn, summing, sums, truth

pytestmark = pytest.mark.some(3)

POLICIES: list[Tolerance] = [MiniBatch(), Approximate(theta=1e9), BarrierSnapshot(batches=4)]


class Deadly(LocalStore):
    """The driver dies with its n-th write: before it, in the middle or after it."""

    left: ClassVar[int] = 0
    how: ClassVar[str] = "before"

    def put(self, name: str, data: bytes) -> None:
        Deadly.left -= 1
        if Deadly.left:
            return super().put(name, data)
        if Deadly.how == "torn":
            super().put(name, data[: len(data) // 2])
        elif Deadly.how == "after":
            super().put(name, data)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


def numbers(rig: Rig) -> int:
    """How many workers the checkpoint has."""
    return numbers_found(open_store(rig.checkpoint))["operator"]


def dies_at(rig: Rig, write: int, how: str) -> bool:
    """Whether a driver that changes the number of workers dies at one of its writes; False if it has fewer."""
    Deadly.left, Deadly.how = write, how
    rig.open_store = Deadly
    rig.engine = None
    try:
        ((ended, why),) = forked(lambda: rig.rescale(workers=3).close())
    finally:
        rig.open_store = open_store
        Deadly.left = 0
    assert ended or why == KILLED, why
    return not ended


@pytest.mark.some(2)
@pytest.mark.parametrize("how", ["before", "torn", "after"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
def test_a_driver_that_dies_at_any_write_leaves_one_or_the_other(
    make_rig: MakeRig, tolerance: Tolerance, is_stopped: bool, keyed: bool, how: str
) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed, max_replay_seconds=100.0, slots={"a": 3, "b": 3})
    if is_stopped:
        rig.go(3)
        stopped(rig)
    else:
        rig.drive_and_die(lambda: (rig.go(3), die()))
    write, found = 1, set()
    whole = rig.root / "whole"
    for place in (rig.checkpoint, rig.segments):
        shutil.copytree(place, whole / place.name)
    while dies_at(rig, write, how):
        in_force = numbers(rig)
        found.add(in_force)
        assert in_force in (2, 3)
        # Whoever comes next goes on with the number that it wants.
        rig.rescale(workers=2 + write % 3)
        rig.go(1)
        rig.driver.close()
        assert rig.bound() == 0 and not any(entry.loss.counted for entry in rig.ledger)
        rig.rescale(workers=2)
        rig.go()
        assert rig.counts() == truth
        rig.driver.close()
        for place in (rig.checkpoint, rig.segments):
            shutil.rmtree(place)
            shutil.copytree(whole / place.name, place)
        write += 1
    # After the record comes the end of the lease.
    assert write > 3 and found == {2, 3}


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
def test_workers_that_are_killed_are_tried_again(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(keyed=keyed, slots={"a": 3, "b": 3})
    rig.go(3)
    stopped(rig)
    rig.hosts.fork()
    marker = rig.root / "killed"

    def kill(kind: str, number: int, attempt: int) -> None:
        if not attempt:
            marker.touch()

    class Killing(LocalStore):
        """The first task that reads a backup is killed, and the one that writes one."""

        def get(self, name: str) -> bytes:
            if name.startswith("objects/") or "/objects/" in name:
                _die_once(str(marker) + "-get")
            return super().get(name)

        def put(self, name: str, data: bytes) -> None:
            if name.startswith("objects/") or "/objects/" in name:
                _die_once(str(marker) + "-put")
            super().put(name, data)

    rig.hosts.before = kill
    rig.open_store = Killing
    rig.rescale(workers=1)
    rig.open_store = open_store
    rig.hosts.before = None
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert os.path.exists(f"{marker}-get") and os.path.exists(f"{marker}-put")


def _die_once(marker: str) -> None:
    if not os.path.exists(marker):
        with open(marker, "w"):
            os.kill(os.getpid(), signal.SIGKILL)


def begun(rig: Rig) -> None:
    """The fourth batch is applied and delivered, and its driver is killed."""
    rig.drive_and_die(lambda: rig.go(deliver=lambda batch: die() if batch == 3 else None))


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
def test_a_batch_that_was_not_committed_is_taken_back(make_rig: MakeRig, tolerance: Tolerance, keyed: bool) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed, max_replay_seconds=100.0, slots={"a": 3, "b": 3})
    begun(rig)
    rig.rescale(workers=3)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert not any(entry.loss.counted for entry in rig.ledger)


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
def test_input_may_be_gone(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(keyed=keyed, tolerance=Approximate(theta=1e9), slots={"a": 3, "b": 3})
    rig.go()
    stopped(rig)
    shutil.rmtree(rig.root / "input")
    (rig.root / "input").mkdir()
    rig.lose()
    for workers in (3, 1, 2):
        rig.rescale(workers=workers)
        rig.driver.ready()
        assert rig.counts() == truth and rig.bound() == 0 and len(rig.cells()) == workers
        rig.driver.close()
        # The first start has found that it has nothing to make durable.
        rig.lose()


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
def test_with_secondaries(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(tolerance=ActiveStandby(batches=2), keyed=keyed, slots={"a": 4, "b": 4, "c": 4})
    rig.go(3)
    rig.driver.close()
    rig.rescale(workers=3)
    rig.go(1)
    rig.driver.close()
    rig.rescale(workers=1)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize("then", ["other workers", "other hosts", "no host"])
def test_a_promoted_worker_of_which_there_is_nothing_lacks_nothing(then: str) -> None:
    """Its windows are closed: the image that begins its new chain is empty, and is there."""
    settings = {"tolerance": ActiveStandby(batches=1), "window": Hopping(10, by="processing"), "keyed": True}
    with testing.run(summing(workers=2, **settings), ITEMS, hosts=3) as query:
        for place in range(4):
            query.batch(drawn(place), at=1.0)
        query.batch(None, at=12.0)
        query.lose_host()
        query.batch(None, at=13.0)
        if then == "other workers":
            query.restart_driver(workers={"sums": 3})
        elif then == "other hosts":
            query.restart_driver(planned=True)
        if then != "other workers":
            for host in query.hosts:
                query.lose_host(host)
        query.batch(drawn(4), at=14.0)
        assert sums(query.results()) == truth(4)
        assert query.bounds() == {"sums": 0.0}
        if then != "no host":
            assert_nothing_was_counted(query)


def test_a_damaged_backup_is_told_before_anything_changes(make_rig: MakeRig) -> None:
    rig, truth = make_rig(keyed=True, slots={"a": 3, "b": 3})
    rig.go(3)
    stopped(rig)
    damaged = rig.objects(0)[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(CheckpointError) as refused:
        rig.rescale(workers=3)
    assert damaged.name in str(refused.value) and "Start it with 2 workers" in str(refused.value.remedy)
    assert numbers(rig) == 2
    # What is resident is whole.
    rig.start(workers=2)
    rig.go()
    assert rig.counts() == truth


def test_how_far_the_driver_before_has_come_is_asked_when_it_has_ended(make_rig: MakeRig) -> None:
    """Of a checkpoint that Spark cannot write to a start has a copy of Spark's part, which is old by then."""
    rig, truth = make_rig(keyed=True, max_replay_seconds=100.0, slots={"a": 3, "b": 3})
    rig.go(3)
    stopped(rig)
    commit = rig.checkpoint / "commits" / "2"
    late = commit.rename(rig.root / "late")

    def end(engine: Coordinator) -> None:
        assert engine.lease.held
        late.rename(commit)

    rig.rescale(workers=3, taken=end)
    assert numbers_at(rig) == {2: 3}
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def numbers_at(rig: Rig) -> dict[int, int]:
    """How many workers the newest record has, by its batch."""
    record = newest_record(open_store(rig.checkpoint).below(FOLDER))
    assert record is not None
    return {record.batch: len(record.operators["operator"].workers)}


def test_former_states_leave_the_hosts(make_rig: MakeRig) -> None:
    rig, truth = make_rig(keyed=True, slots={"a": 3, "b": 3})
    rig.go(2)
    stopped(rig)
    rig.rescale(workers=1)
    rig.go()
    assert rig.counts() == truth
    assert len(list(rig.segments.glob("*/*/*-[0-9]*"))) == 1


def test_savepoints_start_with_any_number(make_rig: MakeRig) -> None:
    from afspark.coordinator.savepoint_copying import start_from_savepoint
    from tests.unit.runtime.test_savepoints import saved

    rig, truth = make_rig(keyed=True, tolerance=MiniBatch(), slots={"a": 3, "b": 3})
    rig.go(3)
    place = saved(rig)
    other = Rig(rig.root / "second", rig.hosts, **{**rig.settings, "workers": 3})
    start_from_savepoint(open_store(place), open_store(other.checkpoint), other.pipeline)
    other.rescale()
    other.go()
    assert other.counts() == truth and other.bound() == 0 and len(other.members) == 3
