"""Recoveries are timed from the failure to the first batch applied, by steps, beside what was estimated."""

from __future__ import annotations

from typing import Any

import pytest

from afspark.api.accounts import Accounts
from afspark.control import MeasuredRecovery, Quantity, RecoveryTimes, Scheme, Unit, Unreplicated
from afspark.coordinator.batch_loop import Coordinator
from afspark.policies import (
    ActiveStandby,
    Approximate,
    BarrierSnapshot,
    MiniBatch,
    Nothing,
    PassiveReplication,
    Tolerance,
)
from afspark.store import LedgerEntry
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts, Hurried, Rig

STEPS = ("detection", "wait", "promotion", "deploy", "read", "replay")


class Sleepy(Hurried):
    """Time passes while somebody waits, and at no other time."""

    def __init__(self) -> None:
        self.now = 5_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class AccountsOf(Accounts):
    def __init__(self, engine: Coordinator) -> None:
        self._engine = engine


def account(entry: LedgerEntry) -> MeasuredRecovery:
    assert entry.recovery is not None
    return MeasuredRecovery.from_json(entry.recovery.account)


def lose_host(rig: Rig, host: str) -> None:
    left = next(name for name in rig.hosts.slots if name != host)
    lost = [worker for worker, home in rig.run_of().homes.items() if home == host]
    rig.lose(*lost)
    rig.hosts.slots = {left: 4}


@pytest.mark.parametrize(
    "tolerance", [MiniBatch(), BarrierSnapshot(batches=50), Approximate(400.0)], ids=lambda t: t.name
)
def test_the_steps_of_a_recovery_add_up(make_rig: MakeRig, tolerance: Tolerance) -> None:
    rig, _ = make_rig(batches=8, tolerance=tolerance, max_replay_seconds=60.0)
    rig.go(5)
    rig.lose(0)
    rig.go(1)
    (entry,) = rig.ledger
    found = account(entry)
    assert found.unit == Unit(rig.run_of().name, 0) and found.kind == "process_killed"
    times = found.measured
    assert not times.unknown and times.wait == times.promotion == times.wire_send == 0.0
    assert all(step is not None and step > 0 for step in (times.detection, times.read, times.wire_receive))
    assert times.seconds == pytest.approx(sum(getattr(times, one) for one in STEPS) + times.wire_receive)
    assert entry.recovery is not None and (found.bytes_read > 0) == (entry.recovery.restored_cells > 0)
    assert (times.read, times.replay) == (entry.recovery.seconds, entry.recovery.replay_seconds)
    assert bool(times.replay) == (entry.recovery.replayed > 0)
    assert entry.recovery.replayed or tolerance.name != "snapshot"


def test_the_time_that_a_host_is_given_is_a_step_of_its_own(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=8, tolerance=MiniBatch(), host_grace_seconds=7.0)
    rig.hosts.clock = Sleepy()
    rig.go(3)
    lose_host(rig, rig.run_of().homes[1])
    rig.go(1)
    found = account(rig.ledger[-1])
    assert found.kind == "host_lost"
    assert found.measured.wait == pytest.approx(7.0, abs=0.2) and found.measured.detection == 0.0
    waits = rig.driver.control.meters.situation(rig.run_of(), 1, 0.0).history.of(Quantity.WAIT)
    assert [one.seconds for one in waits] == [found.measured.wait]


def test_a_secondary_is_promoted_and_nobody_waits(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=8, tolerance=ActiveStandby(batches=3), host_grace_seconds=7.0)
    rig.hosts = Hosts({"a": 4, "b": 4}, clock=Sleepy())
    rig.go(5)
    lose_host(rig, rig.run_of().homes[0])
    rig.go(1)
    for entry in rig.ledger:
        found = account(entry)
        assert (found.kind, found.protection) == ("host_lost", Scheme.ACTIVE_STANDBY)
        assert found.measured == RecoveryTimes(), "no time has passed"
        assert found.bytes_read == 0.0


class SlowStart(Hosts):
    """The first stage on a host takes three seconds, each other one a tenth of a second."""

    def __init__(self) -> None:
        super().__init__({"a": 4, "b": 4}, clock=Sleepy())
        self.started: set[str] = set()

    def run_stage(self, config: Any, work: Any, requests: Any, inputs: Any) -> Any:
        homes = {request.home for request in requests}
        self.clock.sleep(0.1 if homes <= self.started else 3.0)
        self.started |= homes
        return super().run_stage(config, work, requests, inputs)


def test_what_it_takes_to_get_to_a_new_host_is_no_replay(make_rig: MakeRig) -> None:
    tolerance = PassiveReplication(batches=50)
    rig, _ = make_rig(batches=10, workers=1, tolerance=tolerance, max_replay_seconds=60.0)
    rig.hosts = SlowStart()
    rig.go(6)
    lose_host(rig, rig.run_of().homes[0])
    rig.go(1)
    (entry,) = rig.ledger
    found = account(entry)
    assert entry.recovery is not None and entry.recovery.replayed == 5
    assert found.measured.replay == pytest.approx(0.4, abs=0.05) and found.measured.deploy == pytest.approx(
        3.1, abs=0.1
    )
    assert found.items_replayed > 0
    history = rig.driver.control.meters.situation(rig.run_of(), 0, 0.0).history
    (replayed,) = history.of(Quantity.REPLAYED)
    assert (replayed.seconds, replayed.amount) == (found.measured.replay, found.items_replayed)
    assert history.longest(Quantity.DEPLOY) == found.measured.deploy


def test_a_snapshot_that_is_restored_on_another_host_at_once_is_deployed_there(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=10, workers=1, tolerance=PassiveReplication(batches=50), max_replay_seconds=60.0)
    rig.hosts = SlowStart()
    rig.go(3)
    rig.run_of().want(BarrierSnapshot(batches=50))
    rig.go(3)
    lose_host(rig, rig.run_of().homes[0])
    rig.go(1)
    found = account(rig.ledger[-1])
    assert found.protection is Unreplicated.BARRIER_SNAPSHOT
    assert found.estimated.deploy is not None and found.estimated.deploy > 2.9
    assert found.measured.deploy == pytest.approx(3.1, abs=0.1) and (found.measured.wire_receive or 0.0) < 0.2
    history = rig.driver.control.meters.situation(rig.run_of(), 0, 0.0).history
    assert history.longest(Quantity.DEPLOY) == found.measured.deploy


def test_a_recovery_is_recorded_beside_its_estimate(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=12, tolerance=BarrierSnapshot(batches=3), max_replay_seconds=60.0)
    rig.go(5)
    rig.lose(0)
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    first, second = map(account, rig.ledger)
    assert first.estimated.unknown == ("detection",), "nothing like it had happened before"
    assert not second.estimated.unknown and second.off_by is not None
    assert second.estimated.detection == first.measured.detection
    assert second.estimated.read and second.estimated.wire_receive and second.estimated.replay
    assert first.protection is second.protection is Unreplicated.BARRIER_SNAPSHOT
    told = AccountsOf(rig.driver).ledger()[1]
    assert told["steps"] == second.measured.to_json() and told["estimated"] == second.estimated.to_json()
    assert told["failure"] == "process_killed"


def test_who_goes_back_without_a_failure_is_not_timed(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=8, tolerance=BarrierSnapshot(batches=5))
    rig.go(3)
    rig.run_of().group.go_back_alone(1, rig.committed + 1, "somebody says so")
    rig.go(1)
    (entry,) = rig.ledger
    assert entry.recovery is not None and not entry.recovery.account
    told = AccountsOf(rig.driver).ledger()[0]
    assert told["steps"] is None and told["estimated"] is None and told["failure"] is None


def test_nobody_knows_when_a_state_was_lost_that_a_starting_driver_misses(make_rig: MakeRig) -> None:
    rig, _ = make_rig(batches=8, tolerance=MiniBatch())
    rig.go(3)
    rig.lose(0)
    rig.start()
    rig.go(1)
    found = account(rig.ledger[-1])
    assert found.measured.unknown == ("detection",) and found.measured.read


class TestEstimates:
    """For every worker and under all schemes, whatever the tolerance."""

    @pytest.mark.parametrize(
        "tolerance", [MiniBatch(), BarrierSnapshot(batches=2), Approximate(40.0), Nothing()], ids=lambda t: t.name
    )
    def test_under_any_tolerance(self, make_rig: MakeRig, tolerance: Tolerance) -> None:
        rig, _ = make_rig(batches=8, tolerance=tolerance)
        accounts = AccountsOf(rig.start())
        assert accounts.estimates() == [], "nothing was measured yet"
        rig.go(5)
        found = accounts.estimates()
        assert [one["worker"] for one in found] == [0, 1] and all(one["limit"] is None for one in found)
        names = [*Scheme, *Unreplicated]
        for worker in found:
            assert [one["protection"] for one in worker["candidates"]] == names
            assert [one["protection"] for one in worker["candidates"] if one["in_force"]] == [
                worker["in_force"]["protection"]
            ]
            active, standby, *_ = worker["candidates"]
            assert active["seconds"] == 0.0 and active["unknown"] == []
            assert standby["seconds"] is None and standby["unknown"] == ["detection"], "no failure was seen"
            assert standby["estimate"]["promotion"] > 0
        assert accounts.decisions() == []

    def test_what_a_cluster_says_of_its_detection_counts_until_it_was_measured(self, make_rig: MakeRig) -> None:
        rig, _ = make_rig(batches=8, tolerance=BarrierSnapshot(batches=2))
        rig.hosts = WatchedHosts()
        rig.go(5)
        candidates = AccountsOf(rig.driver).estimates()[0]["candidates"]
        assert all(one["seconds"] is not None and not one["unknown"] for one in candidates)
        assert {one["estimate"]["detection"] for one in candidates[1:]} == {1.25}

    def test_histories_survive_a_restart(self, make_rig: MakeRig) -> None:
        rig, _ = make_rig(batches=12, tolerance=BarrierSnapshot(batches=2))
        rig.go(5)
        rig.lose(0)
        rig.go(2)
        rig.driver.close()
        rig.start().ready()
        meters = rig.driver.control.meters
        history = meters.situation(rig.run_of(), 0, rig.hosts.clock.time()).history
        found = account(rig.ledger[0]).measured
        assert history.longest(Quantity.WIRE_RECEIVE) == found.wire_receive
        assert history.newest(Quantity.CHECKPOINT_SIZE) is not None
        other = meters.situation(rig.run_of(), 1, rig.hosts.clock.time()).history
        assert other.longest(Quantity.WIRE_RECEIVE) == found.wire_receive, "what it tells of the cluster"


class Missed:
    """A host that was missed, as a cluster tells it."""

    def __init__(self, host: str, kind: str, heard: float, noticed: float) -> None:
        self.host, self.kind, self.heard, self.noticed = host, kind, heard, noticed
        self.limit = 1.25


class WatchedHosts(Hosts):
    """A cluster that watches its hosts."""

    def __init__(self, slots: dict[str, int] | None = None, **settings: Any) -> None:
        super().__init__(slots, **settings)
        self.missed: list[Missed] = []

    def failures(self) -> list[Missed]:
        return self.missed

    def detection_seconds(self) -> float:
        return 1.25


@pytest.mark.parametrize(("kind", "told"), [("silent", "frozen"), ("gone", "host_lost")])
def test_the_moment_of_a_failure_is_that_of_the_last_sign_of_life(make_rig: MakeRig, kind: str, told: str) -> None:
    hosts = WatchedHosts({"a": 4, "b": 4}, clock=Sleepy())
    rig, _ = make_rig(batches=8, tolerance=ActiveStandby(batches=3))
    rig.hosts = hosts
    rig.go(4)
    lost = rig.run_of().homes[0]
    now = hosts.clock.monotonic()
    # It was seen in a failure that is long over, and now again.
    hosts.missed = [Missed(lost, kind, now - 100.0, now - 99.0), Missed(lost, kind, now, now + 0.75)]
    hosts.clock.sleep(0.75)
    lose_host(rig, lost)
    rig.go(1)
    found = account(rig.ledger[-1])
    assert found.kind == told and found.measured == RecoveryTimes(detection=0.75)
    hosts.missed.pop()
    rig.lose(0)
    rig.go(1)
    assert account(rig.ledger[-1]).kind == "process_killed", "what was seen before is over"


@pytest.mark.parametrize("tolerance", [ActiveStandby(batches=3), PassiveReplication(batches=3)], ids=lambda t: t.name)
def test_a_pause_between_two_batches_is_no_detection(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """The driver knows soon that a host is gone, and nobody needs its workers before the next batch."""
    hosts = WatchedHosts({"a": 4, "b": 4}, clock=Sleepy())
    rig, _ = make_rig(batches=8, tolerance=tolerance)
    rig.hosts = hosts
    rig.go(4)
    lost, now = rig.run_of().homes[0], hosts.clock.monotonic()
    hosts.missed = [Missed(lost, "gone", now, now + 0.75)]
    hosts.clock.sleep(10.0)
    lose_host(rig, lost)
    rig.go(1)
    found = account(rig.ledger[-1])
    assert (found.measured.detection, found.pause, found.at) == (0.75, 9.25, now)
    assert AccountsOf(rig.driver).ledger()[-1]["pause"] == 9.25
    situation = rig.driver.control.meters.situation(rig.run_of(), 0, hosts.clock.time())
    assert situation.detection(found.kind) == 0.75
