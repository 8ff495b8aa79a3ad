"""Secondaries follow their primaries on other hosts, and take their place when those are lost."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from functools import partial
from typing import Any

import pytest

from afspark.cluster.cluster import StageFailed
from afspark.coordinator.replicas import secondary_group, secondary_job
from afspark.coordinator.replicas.secondary import Secondary
from afspark.errors import NoSpace, UsageError
from afspark.policies.replication import ActiveReplication, ActiveStandby
from afspark.protocol.lifecycle import Present
from afspark.resident import SegmentAddress, examine
from afspark.task.deployment import deploy
from tests.unit.runtime.conftest import MakeRig, write_file
from tests.unit.runtime.sparkless import Hosts, Hurried, Rig, die

HOSTS = {"a": 4, "b": 4}


def secondaries(rig: Rig) -> list[Secondary]:
    return rig.driver.runs[-1].group.secondaries.members


def homes(rig: Rig) -> dict[int, str]:
    return rig.driver.runs[-1].homes


def state_on(rig: Rig, host: str, worker: int) -> Present:
    (folder,) = rig.segments.glob(f"{host}/*/operator-{worker}")
    found = examine(folder)
    assert isinstance(found, Present)
    return found


def lose_host(rig: Rig, host: str) -> None:
    """A machine goes, and comes back empty."""
    for folder in rig.segments.glob(f"{host}/*/*-[0-9]*"):
        shutil.rmtree(folder)


def write_own_words(rig: Rig, files: int) -> Counter[str]:
    """Files that share no word: no batch changes what another one has counted."""
    folder = rig.root / "input"
    shutil.rmtree(folder)
    folder.mkdir()
    total: Counter[str] = Counter()
    for number in range(files):
        total.update(write_file(folder, number, [f"file{number}-{word}" for word in range(20)]))
    return total


def build_one_from_damage(rig: Rig) -> Secondary:
    """The secondary of worker 0, which is built anew from backups that cannot be read."""
    for ref in rig.driver.commits.records.covered.state_of("operator", 0).chain:
        (rig.checkpoint / "afspark" / ref.name).write_bytes(b"rot")
    shutil.rmtree(next(rig.segments.glob(f"{secondaries(rig)[0].home}/*/operator-0")))
    rig.go(2)
    one = secondaries(rig)[0]
    assert one.is_built and one.damaged
    return one


def check_whole(rig: Rig, truth: object) -> None:
    assert rig.counts() == truth and rig.bound() == 0
    assert {one.version for one in secondaries(rig)} == {rig.committed}
    assert all(one.home != homes(rig)[one.worker] for one in secondaries(rig))


@pytest.mark.parametrize("keyed", [False, True])
def test_they_follow_on_another_host(make_rig: MakeRig, keyed: bool) -> None:
    rig, truth = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=50), keyed=keyed)
    rig.go()
    assert [one.worker for one in secondaries(rig)] == [0, 1]
    for one in secondaries(rig):
        copy, primary = state_on(rig, one.home, one.worker), state_on(rig, homes(rig)[one.worker], one.worker)
        assert copy.secondary and not primary.secondary
        assert copy.version == primary.version == rig.committed
    check_whole(rig, truth)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)])
def test_one_takes_the_place_of_a_lost_primary(make_rig: MakeRig, lost: tuple[int, ...], keyed: bool) -> None:
    rig, truth = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=50), keyed=keyed)
    rig.go(3)
    before = {one.worker: one.home for one in secondaries(rig)}
    rig.lose(*lost)
    rig.go(1)
    assert [homes(rig)[worker] for worker in lost] == [before[worker] for worker in lost]
    assert [entry.loss.worker for entry in rig.ledger] == list(lost)
    for entry in rig.ledger:
        assert entry.recovery is not None and entry.recovery.covered
        # It had all that its primary had: nothing was read or replayed.
        assert (entry.recovery.restored_cells, entry.recovery.replayed, entry.loss.counted) == (0, 0, False)
    rig.go()
    check_whole(rig, truth)


@pytest.mark.parametrize("batches", [1, 2, 50])
def test_hosts_lost_one_after_the_other(make_rig: MakeRig, batches: int) -> None:
    rig, truth = make_rig(batches=10, slots=HOSTS, tolerance=ActiveStandby(batches=batches), keyed=True)
    for host in ("a", "b", "a", "b"):
        rig.go(2)
        lose_host(rig, host)
    rig.go()
    check_whole(rig, truth)
    assert all(entry.recovery is not None and entry.recovery.restored_cells == 0 for entry in rig.ledger)


def test_both_copies_lost_come_back_from_the_store(make_rig: MakeRig) -> None:
    rig, truth = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(4)
    for host in HOSTS:
        lose_host(rig, host)
    rig.go()
    check_whole(rig, truth)
    assert {entry.loss.worker for entry in rig.ledger} == {0, 1}


def test_the_backups_of_one_that_was_promoted_hold_everything(make_rig: MakeRig) -> None:
    """Also of one that was built from backups: what it writes does not build on those of the primary before it."""
    rig, truth = make_rig(batches=10, slots=HOSTS, tolerance=ActiveStandby(batches=3), keyed=True)
    rig.go(4)
    for one in secondaries(rig):
        shutil.rmtree(next(rig.segments.glob(f"{one.home}/*/operator-{one.worker}")))
    rig.go(2)
    (built_from,) = {one.built_from for one in secondaries(rig)}
    assert built_from > 0
    rig.lose()
    rig.go(3)
    assert rig.driver.commits.records.covered.batch > built_from
    for host in HOSTS:
        lose_host(rig, host)
    rig.go()
    check_whole(rig, truth)
    assert sum(entry.recovery.restored_cells for entry in rig.ledger if entry.recovery) > 0


def test_a_host_that_stays_away_is_not_waited_for(make_rig: MakeRig) -> None:
    rig, truth = make_rig(slots={**HOSTS, "c": 4}, tolerance=ActiveStandby(batches=50), host_grace_seconds=3600.0)
    rig.go(2)
    away = homes(rig)[0]
    del rig.hosts.slots[away]
    rig.go()
    check_whole(rig, truth)
    assert away not in homes(rig).values()


@pytest.mark.parametrize("scheme", [ActiveStandby, ActiveReplication])
def test_few_checkpoints_are_stored_while_they_follow(make_rig: MakeRig, scheme: Any) -> None:
    tolerance = scheme(batches=1, store_every=5)
    rig, truth = make_rig(batches=24, slots=HOSTS, tolerance=tolerance, keyed=True, max_replay_seconds=1000.0)
    rig.go(4)
    covered = [rig.driver.commits.records.covered.batch for _ in range(12) if rig.go(1) is None]
    assert len(set(covered)) <= 4 and rig.committed - covered[-1] < 6
    one = secondaries(rig)[0]
    for folder in rig.segments.glob(f"{one.home}/*/operator-{one.worker}"):
        shutil.rmtree(folder)
    rig.go(1)
    before = rig.driver.commits.records.covered.batch
    assert before >= rig.committed - 1, "without it they are stored as often as the scheme says"
    rig.go(2)
    for host in HOSTS:
        lose_host(rig, host)
    rig.go()
    check_whole(rig, truth)


def test_a_secondary_that_is_lost_is_built_anew(make_rig: MakeRig) -> None:
    rig, truth = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(3)
    (one, _) = secondaries(rig)
    for folder in rig.segments.glob(f"{one.home}/*/operator-{one.worker}"):
        shutil.rmtree(folder)
    rig.go()
    check_whole(rig, truth)
    assert rig.ledger == []


def test_one_that_goes_with_its_host_is_said_in_the_log(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    """Once, and another one is built."""
    slots = {**HOSTS, "c": 4}
    rig, truth = make_rig(batches=8, slots=slots, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(3)
    (one,) = [one for one in secondaries(rig) if one.home not in homes(rig).values()]
    assert "given up" not in caplog.text
    del rig.hosts.slots[one.home]
    rig.go()
    said = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert said == [f"The secondary of worker {one.worker} of operator is given up, because {one.home} is away."]
    check_whole(rig, truth)
    assert rig.ledger == [] and one.home not in {other.home for other in secondaries(rig)}


@pytest.mark.parametrize("survives", ["a", "b"])
def test_a_started_driver_goes_on_with_the_copy_that_is_left(make_rig: MakeRig, survives: str) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ActiveStandby(batches=50), keyed=True)
    rig.go(1)
    rig.drive_and_die(partial(rig.go, 3, lambda batch: die() if batch == 3 else None))
    (lost,) = set(HOSTS) - {survives}
    lose_host(rig, lost)
    rig.start()
    rig.go()
    check_whole(rig, truth)
    assert all(entry.recovery is not None and entry.recovery.restored_cells == 0 for entry in rig.ledger)


def test_nobody_follows_while_a_host_for_a_secondary_is_missing(make_rig: MakeRig) -> None:
    """Every task of a stage reads a share of the input for all: those of some workers alone would lack the rest."""
    rig, truth = make_rig(batches=8, slots={"a": 1, "b": 3}, tolerance=ActiveStandby(batches=50), keyed=True)
    rig.go(2)
    away = rig.hosts.slots.pop("a")
    rig.go(2)
    rig.hosts.slots["a"] = away
    rig.go(1)
    rig.lose()
    rig.go()
    check_whole(rig, truth)


def test_a_zombie_of_the_old_primary_changes_nothing(make_rig: MakeRig) -> None:
    """Its host was away, and comes back with the state that it had."""
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ActiveStandby(batches=50), keyed=True)
    rig.go(3)
    away = homes(rig)[0]
    slots = rig.hosts.slots.pop(away)
    rig.go(2)
    rig.hosts.slots[away] = slots
    assert not state_on(rig, away, 0).secondary
    rig.go()
    check_whole(rig, truth)
    assert state_on(rig, away, 0).secondary


def test_one_host_is_refused(make_rig: MakeRig) -> None:
    rig, _ = make_rig(slots={"a": 8}, tolerance=ActiveStandby(batches=2))
    with pytest.raises(UsageError, match="another host"):
        rig.go()


@pytest.mark.parametrize("keyed", [False, True])
def test_one_takes_the_place_of_a_primary_whose_host_is_silent(make_rig: MakeRig, keyed: bool) -> None:
    """Its host is there as far as anybody knows; a stage that would wait for it is not begun, nor is the host."""
    tolerance = ActiveStandby(batches=50)
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=tolerance, keyed=keyed, host_grace_seconds=3600.0)
    rig.go(3)
    silent = homes(rig)[0]
    rig.hosts.silent.add(silent)
    rig.go(2)
    assert silent not in homes(rig).values()
    assert [failure.host for failure in rig.hosts.failures()] == [silent]
    rig.hosts.silent.clear()
    rig.go()
    check_whole(rig, truth)
    assert all(entry.recovery is not None and entry.recovery.restored_cells == 0 for entry in rig.ledger)


@pytest.mark.parametrize("soon", [True, False])
def test_one_whose_host_was_silent_for_a_while_catches_up(make_rig: MakeRig, soon: bool) -> None:
    tolerance = ActiveStandby(batches=50)
    rig, truth = make_rig(
        batches=12, slots={**HOSTS, "c": 4}, tolerance=tolerance, keyed=True, max_replay_seconds=1000.0
    )
    rig.go(4)
    (one,) = [one for one in secondaries(rig) if one.home not in homes(rig).values()]
    inode = next(rig.segments.glob(f"{one.home}/*/operator-{one.worker}")).stat().st_ino
    rig.hosts.silent.add(one.home)
    rig.go(2)
    protected = {worker: str(found.protection) for worker, found in rig.run_of().protections().items()}
    assert protected == {one.worker: "passive-replication", 1 - one.worker: "active-standby"}
    if not soon:
        rig.hosts.clock = Later()
        rig.go(2)
        assert {two.home for two in secondaries(rig)}.isdisjoint({one.home}), "another one was built"
    rig.hosts.silent.clear()
    rig.go()
    check_whole(rig, truth)
    assert rig.ledger == []
    if soon:
        (same,) = [two for two in secondaries(rig) if two.worker == one.worker]
        assert same.home == one.home
        assert next(rig.segments.glob(f"{one.home}/*/operator-{one.worker}")).stat().st_ino == inode


class Later(Hurried):
    """A minute has passed."""

    def monotonic(self) -> float:
        return super().monotonic() + 60.0


@pytest.mark.parametrize("scheme", [ActiveStandby, ActiveReplication])
def test_one_that_was_built_from_damage_is_not_promoted_by_a_later_driver(make_rig: MakeRig, scheme: Any) -> None:
    """That one finds it, and has no word of what it lacks."""
    rig, _ = make_rig(batches=10, slots=HOSTS, tolerance=scheme(batches=50), keyed=True)
    truth = write_own_words(rig, 40)
    rig.go(4)
    rig.driver.commits.settle()
    build_one_from_damage(rig)
    rig.start()
    rig.go(1)
    rig.lose(0)
    rig.go()
    # What is lacking is lost, and told so.
    assert rig.counts() < truth and rig.bound() == math.inf


def test_the_place_of_one_that_is_built_is_empty_whoever_died_clearing_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(3)
    one = secondaries(rig)[0]
    before = creation(rig, one)
    failed: list[Any] = []
    run_on = Hosts.run_on

    def failing_once(self: Hosts, hosts: Any, task: Any) -> list[Any]:
        if getattr(task, "func", None) is secondary_job._clear and not failed:
            failed.append(task)
            raise StageFailed("an executor died")
        return run_on(self, hosts, task)

    monkeypatch.setattr(Hosts, "run_on", failing_once)
    # It was given something that does not count.
    rig.run_of().group.secondaries.discard(one)
    rig.go(3)
    assert failed and secondaries(rig)[0].home == one.home
    assert creation(rig, one) != before
    rig.lose(0)
    rig.go()
    check_whole(rig, truth)


def creation(rig: Rig, one: Secondary) -> int:
    (meta,) = rig.segments.glob(f"{one.home}/*/operator-{one.worker}/meta.json")
    found: int = json.loads(meta.read_text())["creation"]
    return found


def test_the_place_of_one_on_a_silent_host_is_cleared_when_that_is_back(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is asked to do anything there before."""
    slots = {"a": 4, "b": 4, "c": 4}
    rig, truth = make_rig(batches=12, slots=slots, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(3)
    one = secondaries(rig)[0]
    asked: list[str] = []
    try_on = Hosts.try_on

    def noted(self: Hosts, hosts: Any, task: Any) -> list[Any]:
        asked.extend(hosts.values())
        return try_on(self, hosts, task)

    monkeypatch.setattr(Hosts, "try_on", noted)
    monkeypatch.setattr(secondary_group, "KEPT_SILENT_SECONDS", 0.0)
    rig.hosts.silent.add(one.home)
    rig.go(3)
    assert one.home not in asked and secondaries(rig)[0].home != one.home
    assert list(rig.segments.glob(f"{one.home}/*/operator-0"))
    rig.hosts.silent.clear()
    rig.go(2)
    assert one.home in asked
    assert secondaries(rig)[0].home == one.home or not list(rig.segments.glob(f"{one.home}/*/operator-0"))
    rig.go()
    check_whole(rig, truth)


def test_code_that_cannot_be_loaded_now_holds_up_nobody(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ActiveStandby(batches=2), keyed=True)
    try_on = Hosts.try_on

    def failing(self: Hosts, hosts: Any, task: Any) -> list[Any]:
        if getattr(task, "func", None) is deploy:
            raise StageFailed("an executor died")
        return try_on(self, hosts, task)

    monkeypatch.setattr(Hosts, "try_on", failing)
    rig.go()
    assert not any(one.deployed for one in secondaries(rig))
    check_whole(rig, truth)


def test_what_cannot_be_cleared_now_is_cleared_later(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody is built before."""
    rig, _ = make_rig(slots={**HOSTS, "c": 4}, tolerance=ActiveStandby(batches=2), keyed=True)
    rig.go(2)
    group, one = rig.run_of().group.secondaries, secondaries(rig)[0]
    asked: list[Any] = []

    def failing(self: Hosts, hosts: Any, task: Any) -> list[Any]:
        asked.append(task.func)
        raise StageFailed("an executor died")

    job = secondary_job.SecondaryJob()
    with monkeypatch.context() as patch:
        patch.setattr(Hosts, "try_on", failing)
        place = [(rig.run_of(), one)]
        job.carry_out(rig.hosts, secondary_job.SecondaryOrders(unusable=place, to_deploy=place))
    assert asked == [secondary_job._clear]
    group.gone(one)
    rig.driver._secondaries._take_up(job)
    away = {host: slots for host, slots in rig.hosts.slots.items() if host != one.home}
    members, covered = rig.run_of().group.members, rig.run_of().group.covered
    assert group.house(members, covered, away) == []
    assert group.house(members, covered, rig.hosts.slots) == [one]
    assert group.house(members, covered, rig.hosts.slots) == []


@pytest.mark.parametrize("full", ["b", "c"])
def test_one_that_cannot_be_built_on_a_host_is_built_on_another(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """The folder for resident state of a host is full: the same host would be chosen again and again."""
    rig, truth = make_rig(batches=10, slots={"a": 4, "b": 4, "c": 4}, tolerance=ActiveStandby(batches=1), workers=1)
    real = SegmentAddress.create

    def create(self: SegmentAddress, *given: Any, secondary: bool = False) -> Any:
        if secondary and full in self.directory.parts:
            raise NoSpace("no room", path=str(self.directory), wanted=1)
        return real(self, *given, secondary=secondary)

    monkeypatch.setattr(SegmentAddress, "create", create)
    rig.go(5)
    (one,) = secondaries(rig)
    assert one.is_built and one.home == ({"b", "c"} - {full}).pop()
    rig.lose()
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
