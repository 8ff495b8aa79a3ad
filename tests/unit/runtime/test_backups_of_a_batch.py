"""Backups of one batch by several processes: none is confused with another, and damage is told by whoever goes on."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from afspark.coordinator.worker_state import WorkerState
from afspark.errors import BackupLost
from afspark.policies import RestoreChain
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Hint
from afspark.protocol.reports import Status
from afspark.resident import SegmentAddress, process_cache
from afspark.store import ObjectRef, unseal
from afspark.store.local import LocalStore
from afspark.store.naming import OBJECTS, parse_object_name
from afspark.task.feed import Feed
from afspark.task.unnamed_backups import find_unnamed
from tests.unit.runtime.environments import attend, written_at_once
from tests.unit.runtime.test_losses_in_a_tick import Approximating, bench, dies_in_step, dies_when_confirmed, same_key
from tests.unit.runtime.test_steps import A, Died, FakeLane, Tally

__all__ = ["bench"]

GONE = ObjectRef.of(
    "objects/00000001-0123456789abcdef/tally/00000-00000-000000000000-0000-0007", b"", cells=1, full=True
)


@pytest.mark.parametrize("time", range(6))
def test_a_backup_that_lands_after_its_process_has_died_is_never_the_newest(bench: Approximating, time: int) -> None:
    """Whichever of two names comes first: each process numbers its backups above those of all before it."""
    bench.exact = True
    lane = FakeLane([[1], [2], [3]])

    def refuse(phase: FaultPhase) -> None:
        bench.store.refuses = phase is FaultPhase.APPLYING

    assert bench.run(lane, probe=refuse).status is Status.FAILED
    bench.store.refuses = False
    bench.lose()
    with pytest.raises(Died):
        bench.run(lane, probe=dies_when_confirmed(lane, 2))
    bench.lose()
    bench.store.inner.put(*bench.store.refused[0])
    report = bench.run(lane)
    assert (report.status, report.error) == (Status.APPLIED, None)
    assert bench.state() == {"seen": {1: 1, 2: 1, 3: 1}}
    numbers = [origin.number for name in bench.store.list(OBJECTS) if (origin := parse_object_name(name))]
    assert len(numbers) == len(set(numbers))


def test_backups_of_several_processes_that_were_cut_short_are_no_damage(bench: Approximating) -> None:
    """The process that takes up the batch of a dead one has numbers of its own."""
    bench.exact = True
    lane = FakeLane([[1], [2], [3]])
    for first in (True, False):

        def die(phase: FaultPhase, first: bool = first) -> None:
            if phase is FaultPhase.BACKING_UP:
                raise Died

        with pytest.raises(Died):
            bench.run(lane, probe=die, hint=Hint.CREATE if first else Hint.RESUME)
        process_cache().clear()
    for thread in threading.enumerate():
        # What a dead process was writing ends here with its thread.
        if thread.name == "afspark-writer":
            thread.join()
    for name in bench.store.list(OBJECTS):
        if unseal(bench.store.get(name), name).meta["progress"]:
            bench.store.inner.put(name, b"cut short")
    bench.lose()
    report = bench.run(lane)
    assert (report.status, report.damaged) == (Status.APPLIED, ())


class CutShort(LocalStore):
    """Whoever puts something dies, and leaves a part of it."""

    def put(self, name: str, data: bytes) -> None:
        super().put(name, data[:-1])
        raise Died


@pytest.mark.parametrize("closed", [0, 1])
def test_marks_that_were_cut_short_are_no_damage(bench: Approximating, closed: int) -> None:
    """One process dies while it writes a backup, after so many steps; one while it writes where its numbers begin; the
    next one while it writes a backup again.
    """
    bench.exact = True
    lane = FakeLane([[1], [2], [3], [4]])
    sound = bench.store.inner
    for hint, steps in ((Hint.CREATE, closed + 1), (Hint.RESUME, 0), (Hint.RESUME, 1)):
        bench.store.inner = sound if steps else CutShort(sound.path)
        with pytest.raises(Died):
            bench.run(lane, probe=dies_in_step(steps) if steps else lambda phase: None, hint=hint)
        process_cache().clear()
        if steps:
            cut_short_the_last(bench)
    bench.store.inner = sound
    bench.lose()
    report = bench.run(lane)
    assert (report.status, report.damaged) == (Status.APPLIED, ())
    assert bench.state() == {"seen": {1: 1, 2: 1, 3: 1, 4: 1}}


def cut_short_the_last(bench: Approximating) -> None:
    """The process that was writing the newest backup has died."""
    for thread in threading.enumerate():
        if thread.name == "afspark-writer":
            thread.join()
    found = find_unnamed(bench.config, bench.request()).progress
    assert found is not None
    bench.store.inner.put(found.backups[-1].name, b"cut short")


def test_damage_is_reported_by_whoever_goes_on_from_backups_of_the_same_batch(bench: Approximating) -> None:
    bench.exact = True
    recovering = {"hint": Hint.RECOVER, "incarnation": 1, "recovery": RestoreChain(chain=(GONE,))}
    lane = FakeLane([[1], [2], [3]])
    with pytest.raises(Died):
        bench.run(lane, probe=dies_when_confirmed(lane, 1), **recovering)
    bench.lose()
    assert bench.run(lane, **recovering).damaged == (GONE.name,)


def test_damage_is_reported_again_by_a_batch_that_was_taken_back(bench: Approximating) -> None:
    requests = [
        bench.request(hint=Hint.RECOVER, recovery=RestoreChain(chain=(GONE,)), fence=0),
        bench.request(hint=Hint.ROLLBACK, fence=1),
        bench.request(hint=Hint.RECOVER, recovery=RestoreChain(chain=(GONE,)), fence=2),
    ]
    plain = replace(bench.config, pushed=False)
    reports = [
        attend(plain, request, Tally(), Feed(), SegmentAddress(bench.place), "a", lambda phase: None)
        for request in requests
    ]
    assert (reports[0].damaged, reports[-1].damaged) == ((GONE.name,), (GONE.name,))
    assert all(report.status is Status.APPLIED for report in reports)


def test_what_was_lost_under_another_policy_is_counted_under_an_exact_one(bench: Approximating) -> None:
    """The driver has died in its first tick, without a record, and the query is started again with another policy."""
    lane = FakeLane(same_key(60))
    with pytest.raises(Died):
        bench.batch(lane, dies_when_confirmed(lane, 30))
    bench.lose()
    bench.member, bench.exact = WorkerState.at("a", worker=0), True
    assert bench.batch(lane).positions == {A: 60}
    assert bench.member.failures == 1
    # None is lost if the last backup was durable when its process died.
    assert 0 <= 60 - bench.state()["seen"].get(7, 0) <= bench.told


def test_a_state_that_is_older_than_what_was_confirmed_stops_the_query(bench: Approximating, tmp_path: Path) -> None:
    """Somebody has put back an earlier copy of the folder."""
    bench.exact, bench.writes = True, written_at_once
    lane = FakeLane([[number] for number in range(9)])
    copy = tmp_path / "copy"

    def probe(phase: FaultPhase) -> None:
        if phase is FaultPhase.APPLYING and lane.confirmed == 3 and not copy.exists():
            shutil.copytree(bench.place, copy)
        if phase is FaultPhase.APPLYING and lane.confirmed >= 6:
            raise Died

    with pytest.raises(Died):
        bench.run(lane, probe=probe)
    bench.lose()
    shutil.move(copy, bench.place)
    report = bench.run(lane, hint=Hint.RESUME)
    assert isinstance(report.error, BackupLost)
