"""Secondaries whose jobs are slower than commit records: they are promoted all the same, and become complete."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from afspark.coordinator.replicas import secondaries as secondaries_module
from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.secondary_job import SecondaryJob, SecondaryOrders
from afspark.numbers import Batch
from afspark.policies.replication import (
    ActiveReplication,
    ActiveStandby,
    ColdStandby,
    HotStandby,
)
from afspark.resident.folders import discard
from afspark.task.backup_writes import BackgroundWrite, DoneAtOnce
from tests.simulation.cluster import DelayedJob
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import NEVER
from tests.unit.runtime.sparkless import Hosts, Rig
from tests.unit.runtime.test_schemes import protections
from tests.unit.runtime.test_secondaries import HOSTS, creation, homes, secondaries, state_on

pytestmark = pytest.mark.some(3)


class SlowJobs(Hosts):
    """Jobs of secondaries are done after so many looks at them; records are written at once."""

    def __init__(self, looks: int, **given: Any) -> None:
        super().__init__(HOSTS, **given)
        self.looks = looks

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return DelayedJob(job, self.looks) if _is_theirs(job) else DoneAtOnce(job)


def _is_theirs(job: Any) -> bool:
    function = getattr(job, "func", None)
    return function is secondaries_module._run_alone or isinstance(getattr(function, "__self__", None), SecondaryJob)


def slow_rig(make_rig: MakeRig, tolerance: Any, **settings: Any) -> tuple[Rig, Any]:
    """A rig whose secondaries were in time for four batches, and are slow from then on."""
    chosen = {"batches": 20, "keyed": True, "max_replay_seconds": 1000.0, "tolerance": tolerance, **settings}
    rig, truth = make_rig(**chosen)
    rig.hosts = SlowJobs(0)
    rig.go(4)
    return rig, truth


def lose_primary(rig: Rig) -> None:
    """Worker 0 loses its state, while what it has spooled may be on its way."""
    discard(rig.segment_folders()["operator", 0])


def lose_host(rig: Rig, host: str) -> None:
    """A machine goes, and comes back empty."""
    for folder in rig.segments.glob(f"{host}/*/*-[0-9]*"):
        discard(folder)


def covered(rig: Rig) -> int:
    return rig.driver.commits.records.covered.batch


def fall_behind(rig: Rig) -> dict[int, Secondary]:
    """Records become durable that no secondary has heard of; the secondaries."""
    rig.hosts.looks = NEVER  # type: ignore[attr-defined]
    rig.go(4)
    found = {one.worker: one for one in secondaries(rig)}
    assert all(one.is_built and one.version < covered(rig) for one in found.values())
    return found


@pytest.mark.parametrize("scheme", [HotStandby, ColdStandby, ActiveStandby, ActiveReplication])
@pytest.mark.parametrize("keyed", [False, True])
def test_one_that_is_behind_the_newest_record_is_promoted(make_rig: MakeRig, scheme: Any, keyed: bool) -> None:
    """It reads from the store what it lacks, and nothing else."""
    rig, truth = slow_rig(make_rig, scheme(batches=1, **_often(scheme)), keyed=keyed)
    before, lacking = fall_behind(rig), rig.committed - covered(rig)
    lose_primary(rig)
    rig.go(1)
    assert homes(rig)[0] == before[0].home
    (entry,) = rig.ledger
    assert entry.recovery is not None and entry.recovery.covered and not entry.loss.counted
    assert entry.recovery.restored_cells == 0 and entry.recovery.replayed <= lacking
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def _often(scheme: Any) -> dict[str, int]:
    return {"store_every": 1} if scheme in (ActiveStandby, ActiveReplication) else {}


def test_what_came_to_one_is_known_when_its_primary_is_lost(make_rig: MakeRig) -> None:
    """Also if it came after the last batch had ended: nothing is read that it has."""
    rig, truth = slow_rig(make_rig, ColdStandby(batches=1))
    rig.hosts.looks = 1  # type: ignore[attr-defined]
    rig.go(2)
    (version,) = {one.version for one in secondaries(rig)}
    lose_primary(rig)
    rig.go(1)
    assert rig.run_of().group.member(0).incarnation == 1
    assert state_on(rig, homes(rig)[0], 0).version == rig.committed > version
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_backups_that_cannot_be_read_complete_nobody(make_rig: MakeRig) -> None:
    """The worker is restored from what there is, and that is told."""
    rig, _ = slow_rig(make_rig, HotStandby(batches=1))
    one = fall_behind(rig)[0]
    durable = rig.driver.commits.records.covered.state_of("operator", 0)
    plan = durable.completion(one.version)
    assert plan is not None and 0 < len(plan.chain) < len(durable.chain)
    (rig.checkpoint / "afspark" / plan.chain[0].name).write_bytes(b"rot")
    lose_primary(rig)
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    rig.go()
    first, second = rig.ledger
    assert first.recovery is None, "the one that was promoted could not go on"
    assert second.recovery is not None and not second.recovery.covered and second.recovery.restored_cells > 0
    assert rig.bound() == math.inf


def test_a_full_image_completes_nobody(make_rig: MakeRig) -> None:
    """It does not say which cells are gone: the worker is read from the store."""
    rig, truth = slow_rig(make_rig, HotStandby(batches=1, full_every=3))
    fall_behind(rig)
    durable = rig.driver.commits.records.covered.state_of("operator", 0)
    assert durable.chain[0].full and durable.completion(secondaries(rig)[0].version) is None
    lose_primary(rig)
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    rig.go()
    assert rig.ledger[0].recovery is not None and rig.ledger[0].recovery.restored_cells > 0
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize("looks", [1, 2, 4])
@pytest.mark.parametrize("scheme", [ActiveReplication, ActiveStandby, HotStandby, ColdStandby])
def test_a_new_one_is_complete_after_a_while(make_rig: MakeRig, scheme: Any, looks: int) -> None:
    """With a record for every batch it is built once, and brought on from there."""
    rig, truth = slow_rig(make_rig, scheme(batches=1, **_often(scheme)), batches=40)
    rig.hosts.looks = looks  # type: ignore[attr-defined]
    lose_host(rig, homes(rig)[0])
    built: set[int] = set()
    for _ in range(6 * (looks + 1)):
        rig.go(1)
        built |= {creation(rig, one) for one in secondaries(rig) if one.is_built and one.worker == 0}
    assert protections(rig) == {scheme.name}
    assert len(built) <= 2
    # And stays so, although there are records all the time.
    rig.go(4)
    assert protections(rig) == {scheme.name}
    lose_host(rig, homes(rig)[0])
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_those_that_sleep_are_brought_on_if_no_checkpoint_is_left_for_them(make_rig: MakeRig) -> None:
    rig, truth = slow_rig(make_rig, ColdStandby(batches=1))
    rig.go(1)
    group = rig.run_of().group
    fall_behind(rig)
    group.secondaries._deltas.clear()
    before = {one.worker: creation(rig, one) for one in secondaries(rig)}
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    rig.driver._secondaries._job.work.wait()  # type: ignore[union-attr]
    rig.go(3)
    assert {one.worker: creation(rig, one) for one in secondaries(rig)} == before
    assert min(one.version for one in secondaries(rig)) >= covered(rig) - 1
    assert Batch(rig.committed) > 0 and rig.ledger == []
    lose_primary(rig)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def orders_of(rig: Rig, batches: int) -> list[SecondaryOrders]:
    """What secondaries are told to do in so many batches."""
    found: list[SecondaryOrders] = []
    carry_out = SecondaryJob.carry_out

    def noting(self: SecondaryJob, cluster: Any, orders: SecondaryOrders) -> None:
        found.append(orders)
        carry_out(self, cluster, orders)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecondaryJob, "carry_out", noting)
        rig.go(batches)
    return found


def test_no_items_wait_that_a_checkpoint_brings(make_rig: MakeRig) -> None:
    """A secondary that is slow would not come to those that it needs."""
    rig, truth = slow_rig(make_rig, HotStandby(batches=3))
    rig.hosts.looks = 2  # type: ignore[attr-defined]
    shipped = [orders for orders in orders_of(rig, 12) if orders.to_ship]
    assert shipped
    for orders in shipped:
        versions = {order.worker: order.version for _, _, order in orders.to_ship}
        brought = rig.run_of().group.secondaries._deltas
        for stage in orders.to_queue:
            for one in stage.secondaries:
                until = [delta.until for delta in brought[one.worker] if delta.until > versions.get(one.worker, -1)]
                assert not until or stage.batch not in range(versions[one.worker] + 1, min(until) + 1)
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    lose_primary(rig)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


class HalfDone(DelayedJob):
    """A job under way: its results are there as they come, and nobody has seen its end."""

    def __init__(self, job: Callable[[], None]) -> None:
        super().__init__(job, NEVER)
        self._do(job)
        self._job = lambda: None


def test_what_a_job_has_done_counts_while_it_goes_on(make_rig: MakeRig) -> None:
    rig, truth = slow_rig(make_rig, ColdStandby(batches=1))
    jobs = rig.driver._secondaries
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rig.hosts, "in_background", lambda job: HalfDone(job) if _is_theirs(job) else DoneAtOnce(job))
        while jobs._job.is_done or not jobs._job.shipped:
            rig.go(1)
    one = secondaries(rig)[0]
    lose_primary(rig)
    jobs.settle()
    assert secondaries(rig)[0].version > one.version and not jobs._job.is_done
    rig.go(1)
    assert homes(rig)[0] == one.home
    (entry,) = rig.ledger
    assert entry.recovery is not None and entry.recovery.restored_cells == 0
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_what_was_ordered_before_a_loss_is_not_begun_after_it(make_rig: MakeRig) -> None:
    """The worker that recovers needs the slots."""
    rig, truth = slow_rig(make_rig, HotStandby(batches=3))
    fall_behind(rig)
    job = rig.driver._secondaries._job
    lose_primary(rig)
    rig.go(1)
    assert job.is_stopped and job.work is not None
    job.work.wait()
    assert not (job.shipped or job.queued or job.applied)
    rig.hosts.looks = 0  # type: ignore[attr-defined]
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.parametrize("scheme", [ActiveStandby, ActiveReplication])
def test_what_they_lag_behind_is_in_the_estimate(make_rig: MakeRig, scheme: Any) -> None:
    rig, _ = slow_rig(make_rig, scheme(batches=50), keyed=False)

    def replaying() -> set[float]:
        found = rig.driver.control.estimates(rig.run_of())
        return {two["estimate"]["replay"] for one in found for two in one["candidates"] if two["in_force"]}

    assert protections(rig) == {scheme.name} and replaying() == {0.0}
    rig.hosts.looks = NEVER  # type: ignore[attr-defined]
    rig.go(1)
    assert replaying() == {0.0}, "with the last batch they may be at work"
    rig.go(5)
    assert protections(rig) == {scheme.name} and min(replaying()) > 0.0
