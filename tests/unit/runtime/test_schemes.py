"""All six schemes on a running query: each recovers exactly, and every one is reached from every other."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest

from afspark.control import Quantity, Scheme
from afspark.coordinator.recovery.replay import Replay
from afspark.coordinator.replicas.secondary_job import SecondaryJob
from afspark.errors import UsageError
from afspark.policies import Adaptive, BarrierSnapshot, MiniBatch
from afspark.policies.replication import (
    SCHEMES,
    ActiveReplication,
    ActiveStandby,
    ColdStandby,
    Deployed,
    HotStandby,
    PassiveReplication,
)
from afspark.sources.text_files import TextFiles
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_secondaries import HOSTS, homes, lose_host, secondaries, state_on

pytestmark = pytest.mark.some(3)

PAIRS = list(itertools.permutations(SCHEMES, 2))


def protections(rig: Rig) -> set[str]:
    return {str(one.protection) for one in rig.run_of().protections().values()}


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
@pytest.mark.parametrize("keyed", [False, True])
def test_hosts_lost_one_after_the_other(make_rig: MakeRig, scheme: Any, keyed: bool) -> None:
    rig, truth = make_rig(batches=11, slots=HOSTS, tolerance=scheme(batches=2), keyed=keyed)
    for host in ("a", "b", "a"):
        rig.go(3)
        lose_host(rig, host)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert len(rig.ledger) > 1


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_each_prepares_what_it_says(make_rig: MakeRig, scheme: Any) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=scheme(batches=3), keyed=True)
    rig.go()
    covered = rig.driver.commits.records.covered.batch
    assert covered < rig.committed and protections(rig) == {scheme.name}
    assert rig.counts() == truth and rig.ledger == []
    if scheme is PassiveReplication:
        assert secondaries(rig) == []
        return
    for one in secondaries(rig):
        assert one.deployed and one.home != homes(rig)[one.worker]
        if scheme is Deployed:
            assert not one.holds_state and not list(rig.segments.glob(f"{one.home}/*/operator-{one.worker}"))
            continue
        follows = scheme in (ActiveReplication, ActiveStandby)
        version = state_on(rig, one.home, one.worker).version
        assert version == one.version == (rig.committed if follows else covered)
        waiting = list(range(covered + 1, rig.committed + 1)) if scheme is HotStandby else []
        assert sorted(one.queued) == waiting
        files = rig.segments.glob(f"{one.home}/*/operator-{one.worker}/queue-*")
        assert sorted(int(file.name.removeprefix("queue-")) for file in files) == waiting


@pytest.mark.parametrize("keyed", [False, True])
def test_what_waits_in_the_queue_is_not_read_again(
    make_rig: MakeRig, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"tolerance": HotStandby(batches=50), "max_replay_seconds": 1000.0}
    rig, truth = make_rig(batches=10, slots=HOSTS, keyed=keyed, **settings)
    rig.go(8)
    (covered,) = {one.version for one in secondaries(rig)}
    assert covered < 6
    read, while_replaying = [], []
    reading, replaying = TextFiles.read, Replay._replay

    def read_chunk(self: TextFiles, chunk: Any) -> Any:
        read.append(chunk)
        return reading(self, chunk)

    def replay(self: Replay, *stage: Any) -> bool:
        before = len(read)
        done = replaying(self, *stage)
        while_replaying.append(len(read) - before)
        return done

    monkeypatch.setattr(TextFiles, "read", read_chunk)
    monkeypatch.setattr(Replay, "_replay", replay)
    rig.lose()
    rig.go(1)
    replayed = {entry.recovery.replayed for entry in rig.ledger if entry.recovery is not None}
    assert replayed == {7 - covered}
    assert read and while_replaying == [0], "what waits is applied in one stage"
    monkeypatch.undo()
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_a_lost_primary_is_answered_for_by_the_other_active_replica(make_rig: MakeRig) -> None:
    """It has applied the batch under way, and nothing is done again."""
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=ActiveReplication(batches=50), keyed=True)
    rig.go(3)
    before = {one.worker: one.home for one in secondaries(rig)}
    stages: list[str] = []
    real = SecondaryJob.run

    def run(self: SecondaryJob, cluster: Any, stage: Any) -> bool:
        done = real(self, cluster, stage)
        if stage.batch == 3 and not stages:
            stages.append("alongside")
            rig.lose(0)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SecondaryJob, "run", run)
        rig.go(1)
    assert stages and homes(rig)[0] == before[0]
    (entry,) = rig.ledger
    assert entry.recovery is not None and (entry.recovery.replayed, entry.recovery.restored_cells) == (0, 0)
    assert state_on(rig, before[0], 0).version == 3
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


@pytest.mark.some(5)
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=lambda scheme: scheme.name)
def test_every_transition_on_a_running_query(make_rig: MakeRig, before: Any, after: Any) -> None:
    rig, truth = make_rig(batches=14, slots=HOSTS, tolerance=before(batches=2), keyed=True)
    rig.go(3)
    assert protections(rig) == {before.name}
    rig.run_of().want(after(batches=2))
    rig.go(4)
    assert protections(rig) == {after.name}
    rig.lose(0)
    rig.go(3)
    lose_host(rig, "a")
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert protections(rig) == {after.name}


def test_workers_of_an_operator_have_schemes_of_their_own(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=12, slots=HOSTS, tolerance=PassiveReplication(batches=2), keyed=True)
    rig.go(2)
    rig.run_of().protect(0, Scheme.HOT_STANDBY, 0.001)
    rig.go(4)
    found = {worker: one.protection for worker, one in rig.run_of().protections().items()}
    assert found == {0: Scheme.HOT_STANDBY, 1: Scheme.PASSIVE_REPLICATION}
    assert [one.worker for one in secondaries(rig)] == [0]
    rig.run_of().protect(1, Scheme.ACTIVE_STANDBY, None)
    rig.go(2)
    assert {one.worker: one.version >= rig.committed - 1 for one in secondaries(rig)}[1]
    for host in ("a", "b"):
        lose_host(rig, host)
        rig.go(1)
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0


def test_a_started_driver_goes_on_with_the_scheme_that_was_set(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=10, slots=HOSTS, tolerance=ColdStandby(batches=2), keyed=True)

    def script() -> None:
        rig.go(2)
        rig.run_of().want(HotStandby(batches=1))
        rig.go(4, lambda batch: die() if batch == 5 else None)

    rig.drive_and_die(script)
    rig.start()
    rig.go(1)
    assert {unit.protection for unit in rig.run_of().group.secondaries.units.values()} == {Scheme.HOT_STANDBY}
    rig.start(tolerance=Deployed(batches=2))
    rig.go()
    assert protections(rig) == {"deployed"}
    assert rig.counts() == truth


@pytest.mark.parametrize("tolerance", [MiniBatch(), HotStandby(gap=True)])
def test_what_cannot_be_changed_to_is_refused(make_rig: MakeRig, tolerance: Any) -> None:
    rig, _ = make_rig(slots=HOSTS, tolerance=BarrierSnapshot(batches=2))
    rig.go(1)
    with pytest.raises(UsageError):
        rig.run_of().want(tolerance)


def test_what_a_controller_chooses_is_not_for_users_to_set(make_rig: MakeRig) -> None:
    """It would not last, and no start would know of it."""
    rig, _ = make_rig(slots=HOSTS, tolerance=Adaptive(every=3600))
    rig.go(1)
    with pytest.raises(UsageError, match="chosen by Adaptive") as refused:
        rig.run_of().want(HotStandby())
    assert refused.value.fields["operator"] == rig.run_of().name and refused.value.remedy
    rig.run_of().protect(0, Scheme.HOT_STANDBY, 1.0)
    assert rig.run_of().group.secondaries.units[0].protection is Scheme.HOT_STANDBY


def test_a_transition_tells_how_long_its_steps_take(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=8, slots=HOSTS, tolerance=PassiveReplication(batches=1), keyed=True)
    rig.go(3)

    def known(what: Quantity) -> int:
        return len(rig.driver.control.meters.situation(rig.run_of(), 0, 0.0).history.of(what))

    assert (known(Quantity.DEPLOY), known(Quantity.READ)) == (0, 0)
    rig.run_of().want(ColdStandby(batches=1))
    rig.go()
    assert protections(rig) == {"cold-standby"}
    assert known(Quantity.DEPLOY) == 1 and known(Quantity.READ) >= 1


def test_no_secondary_follows_a_pushed_source_through_other_operators(make_rig: MakeRig) -> None:
    rig, _ = make_rig(slots=HOSTS, tolerance=BarrierSnapshot(batches=2))
    rig.go(1)
    rig.run_of().is_pushed = True
    with pytest.raises(UsageError, match="cannot follow a pushed source"):
        rig.run_of().want(HotStandby())
    rig.run_of().want(PassiveReplication(batches=2))


def test_one_host_is_refused(make_rig: MakeRig) -> None:
    rig, _ = make_rig(slots={"a": 4}, tolerance=BarrierSnapshot(batches=2))
    rig.go(1)
    with pytest.raises(UsageError, match="another host"):
        rig.run_of().want(HotStandby())


def test_both_replicas_are_compared(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    from afspark.coordinator.replicas import secondaries as module

    rig, _ = make_rig(slots=HOSTS, tolerance=ActiveStandby(batches=50), keyed=True)
    rig.go(2)
    assert rig.ledger == []
    monkeypatch.setattr(module, "other_effects", partial(_differs))
    rig.go(1)
    assert any(entry.recovery is not None and entry.recovery.differed for entry in rig.ledger)


def _differs(first: Any, second: Any) -> list[str]:
    return ["counts"]


def test_hosts_are_waited_for_as_the_schemes_in_force_say(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a restart: what was set is kept, whatever the program says."""
    told: list[tuple[bool, bool]] = []
    rig, _ = make_rig(batches=14, slots=HOSTS, tolerance=BarrierSnapshot(batches=1), keyed=True)

    def heed(*, standby: bool, elsewhere: bool) -> None:
        told.append((standby, elsewhere))

    monkeypatch.setattr(rig.hosts, "heed", heed)
    rig.go(2)
    assert set(told) == {(False, False)}
    rig.run_of().want(PassiveReplication(batches=1))
    rig.go(1)
    assert told[-1] == (False, True)
    rig.run_of().want(HotStandby(batches=1))
    rig.go(3)
    assert told[-1] == (True, True)
    del told[:]
    rig.start()
    rig.go(1)
    assert set(told) == {(True, True)}
    rig.run_of().want(BarrierSnapshot(batches=2))
    rig.go(4)
    assert told[-1] == (False, False) and secondaries(rig) == []


def test_the_end_of_a_stream_is_durable_whoever_takes_over_in_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two active replicas that has applied the last batch has backed up nothing."""
    rig, truth = make_rig(batches=4, slots=HOSTS, tolerance=ActiveReplication(batches=50), keyed=True)
    rig.go()
    lost: list[int] = []
    real = SecondaryJob.run

    def run(self: SecondaryJob, cluster: Any, stage: Any) -> bool:
        done = real(self, cluster, stage)
        if not lost:
            lost.append(stage.batch)
            rig.lose(0)
        return done

    monkeypatch.setattr(SecondaryJob, "run", run)
    rig.end()
    assert lost and rig.driver.ended
    assert rig.driver.commits.records.covered.batch == rig.driver.committed
    rig.start()
    rig.driver.ready()
    assert rig.driver.ended and rig.counts() == truth
