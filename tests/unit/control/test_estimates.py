"""Table 2 by hand, and what happens where something was not measured."""

from __future__ import annotations

import math

import pytest

from afspark.control import (
    STEPS,
    FailureKind,
    Measurement,
    Protection,
    Quantity,
    RecoveryTimes,
    Scheme,
    UnitHistory,
    Unreplicated,
    estimate,
)
from afspark.control.estimates import transfer_seconds
from tests.unit.control.measurements import NOW, history, situation

# 20 s for 2 GB; since the checkpoint 10,000 items came, which take 0.2 s.
EXPECTED: dict[Protection, float] = {
    Scheme.ACTIVE_REPLICATION: 0.0,
    Scheme.ACTIVE_STANDBY: 0.5 + 0.1,
    Scheme.HOT_STANDBY: 0.5 + 0.1 + 0.2 + 0.2,
    Scheme.COLD_STANDBY: 0.5 + 0.1 + max(0.2, 0.3) + 0.2,
    Scheme.DEPLOYED: 0.5 + 20.0 + max(0.2, 0.3) + 0.2,
    Scheme.PASSIVE_REPLICATION: 0.5 + 3.0 + 20.0 + max(0.2, 0.3) + 0.2,
    Unreplicated.BARRIER_SNAPSHOT: 0.5 + 20.0 + 0.3 + 0.2,
    Unreplicated.APPROXIMATE: 0.5 + 20.0 + 0.3,
}


@pytest.mark.parametrize("protection", EXPECTED)
def test_the_sum_is_that_of_the_tables(protection: Protection) -> None:
    found = estimate(protection, situation())
    assert found.seconds == pytest.approx(EXPECTED[protection]) and not found.unknown


@pytest.mark.parametrize("scheme", list(Scheme)[2:])
def test_gap_recovery_replays_nothing(scheme: Scheme) -> None:
    found = estimate(scheme, situation(), gap=True)
    assert found.replay == 0.0 and found.seconds == pytest.approx(EXPECTED[scheme] - 0.2)
    assert estimate(Unreplicated.BARRIER_SNAPSHOT, situation(), gap=True).replay == pytest.approx(0.2)


@pytest.mark.parametrize("protection", EXPECTED)
def test_without_measurements_only_what_needs_no_step_is_known(protection: Protection) -> None:
    found = estimate(protection, situation(UnitHistory()))
    assert set(found.unknown) == set(STEPS[protection])
    assert found.seconds == (math.inf if STEPS[protection] else 0.0)


@pytest.mark.parametrize("missing", [Quantity.DEPLOY, Quantity.PROMOTION, Quantity.WIRE_SEND, *FailureKind])
def test_one_missing_measurement_makes_an_estimate_unknown(missing: Quantity | FailureKind) -> None:
    known = UnitHistory({what: found for what, found in history().series.items() if what != missing})
    step = "detection" if isinstance(missing, FailureKind) else missing.value
    for protection, steps in STEPS.items():
        assert estimate(protection, situation(known)).unknown == ((step,) if step in steps else ())


def test_detection_is_the_longest_recorded_of_the_slowest_kind() -> None:
    found = history().add(FailureKind.FROZEN, at=NOW, seconds=4.0).add(FailureKind.FROZEN, at=NOW + 1, seconds=2.0)
    assert estimate(Scheme.ACTIVE_STANDBY, situation(found)).detection == 4.0
    assert estimate(Scheme.ACTIVE_STANDBY, situation(found), kind=FailureKind.HOST_LOST).detection == 0.5
    assert estimate(Scheme.ACTIVE_REPLICATION, situation(found)).detection == 0.0


def test_a_deadline_stands_in_until_a_kind_was_measured() -> None:
    only_killed = UnitHistory().add(FailureKind.PROCESS_KILLED, at=NOW, seconds=0.2)
    deadlines = dict.fromkeys(FailureKind, 3.0)
    assert situation(only_killed).detection() is None
    assert situation(only_killed, deadlines=deadlines).detection() == 3.0
    assert situation(only_killed, deadlines=deadlines).detection(FailureKind.PROCESS_KILLED) == 0.2


def test_the_deadline_of_an_answer_is_the_least_that_a_silence_takes() -> None:
    """One that was noticed sooner was lucky; one that took longer counts."""
    deadlines = dict.fromkeys(FailureKind, 3.0)
    for kind in (FailureKind.FROZEN, FailureKind.NETWORK_CUT):
        found = history(detection=0.6)
        assert situation(found, deadlines=deadlines).detection(kind) == 3.0
        assert situation(found.add(kind, at=NOW, seconds=4.0), deadlines=deadlines).detection(kind) == 4.0
    assert situation(history(detection=0.6), deadlines=deadlines).detection(FailureKind.HOST_LOST) == 0.6
    assert situation(history(detection=0.6), deadlines=deadlines).detection() == 3.0


def test_a_silence_that_was_recorded_with_another_deadline_tells_how_late_it_was() -> None:
    """With five seconds of patience it was noticed after 5.3 s, of at most 5.2."""
    patient = history(detection=0.6).add(FailureKind.FROZEN, at=NOW, seconds=5.3, amount=5.2)
    assert situation(patient, deadlines=dict.fromkeys(FailureKind, 0.8)).detection() == pytest.approx(0.9)
    early = history(detection=0.6).add(FailureKind.FROZEN, at=NOW, seconds=5.1, amount=5.2)
    assert situation(early, deadlines=dict.fromkeys(FailureKind, 0.8)).detection() == pytest.approx(0.8)


def test_active_replication_costs_what_its_failures_did() -> None:
    found = history().add(Quantity.TAKEOVER, at=NOW, seconds=0.7)
    assert estimate(Scheme.ACTIVE_REPLICATION, situation(found)) == RecoveryTimes(promotion=0.7)


def test_a_silence_under_active_replication_takes_no_less_than_is_expected() -> None:
    """What was recorded may be a process that was killed, of which the driver hears at once."""
    killed = situation(history().add(Quantity.TAKEOVER, at=NOW, seconds=0.6), expected={Quantity.TAKEOVER: 1.1})
    for kind in (None, FailureKind.FROZEN, FailureKind.NETWORK_CUT):
        assert estimate(Scheme.ACTIVE_REPLICATION, killed, kind=kind).seconds == 1.1
    for kind in (FailureKind.PROCESS_KILLED, FailureKind.HOST_LOST):
        assert estimate(Scheme.ACTIVE_REPLICATION, killed, kind=kind).seconds == 0.6
    slower = situation(history().add(Quantity.TAKEOVER, at=NOW, seconds=1.6), expected={Quantity.TAKEOVER: 1.1})
    assert estimate(Scheme.ACTIVE_REPLICATION, slower, kind=FailureKind.FROZEN).seconds == 1.6


def test_a_planned_interval_is_looked_at_before_its_checkpoint_is_safe() -> None:
    found = estimate(Scheme.HOT_STANDBY, situation(), interval=4.0)
    assert found.replay == pytest.approx((4.0 + 0.1) * 10_000 / 50_000)
    burst = history().add(Quantity.RECEIVED, at=NOW + 0.5, seconds=0.5, amount=20_000)
    assert estimate(Scheme.HOT_STANDBY, situation(burst), interval=4.0).replay == pytest.approx(4 * 4.1 * 0.2)


def test_a_replay_goes_at_the_lowest_throughput_of_the_present() -> None:
    slower = history().add(Quantity.PROCESSED, at=NOW, seconds=0.5, amount=10_000)
    assert estimate(Scheme.COLD_STANDBY, situation(slower)).replay == pytest.approx(0.5)
    over = history().add(Quantity.PROCESSED, at=NOW - 60, seconds=0.5, amount=10_000)
    assert estimate(Scheme.COLD_STANDBY, situation(over)).replay == pytest.approx(0.2)


def test_no_replay_that_is_remembered_was_slower() -> None:
    replayed = history().add(Quantity.REPLAYED, at=NOW - 60, seconds=4.0, amount=40_000)
    assert estimate(Scheme.COLD_STANDBY, situation(replayed)).replay == pytest.approx(1.0)
    faster = history().add(Quantity.REPLAYED, at=NOW - 60, seconds=0.1, amount=40_000)
    assert estimate(Scheme.COLD_STANDBY, situation(faster)).replay == pytest.approx(0.2)


def test_where_nothing_can_be_replayed_only_a_queue_helps() -> None:
    closed = situation(replayable=False)
    assert estimate(Scheme.HOT_STANDBY, closed).replay == pytest.approx(0.2)
    for protection in (*list(Scheme)[3:], Unreplicated.BARRIER_SNAPSHOT):
        assert estimate(protection, closed).unknown == ("replay",)
    assert not estimate(Scheme.COLD_STANDBY, closed, gap=True).unknown


def test_a_host_is_waited_for_only_without_a_scheme() -> None:
    waiting = {Quantity.WAIT: 20.0}
    for elsewhere in (False, True):
        found = situation(UnitHistory(), expected=waiting, elsewhere=elsewhere)
        assert all(estimate(one, found).wait == (0.0 if elsewhere else 20.0) for one in Unreplicated)
        assert all(estimate(scheme, found).wait == 0.0 for scheme in Scheme)


@pytest.mark.parametrize("scheme", [Scheme.ACTIVE_REPLICATION, Scheme.ACTIVE_STANDBY])
def test_what_a_secondary_lags_behind_is_replayed(scheme: Scheme) -> None:
    lagging = situation(behind=100_000.0)
    assert estimate(scheme, lagging).replay == pytest.approx(2.0)
    assert estimate(scheme, lagging).seconds == pytest.approx(EXPECTED[scheme] + 2.0)
    assert estimate(scheme, lagging, gap=True).replay == 0.0, "it is left out"
    assert estimate(scheme, situation(UnitHistory(), behind=1.0)).replay is None
    assert estimate(Scheme.COLD_STANDBY, lagging) == estimate(Scheme.COLD_STANDBY, situation())


def test_who_is_restored_on_another_host_at_once_is_deployed_there() -> None:
    for one in Unreplicated:
        assert estimate(one, situation()).deploy == 0.0
        moved = estimate(one, situation(elsewhere=True))
        assert moved.deploy == 3.0 and moved.seconds == pytest.approx(EXPECTED[one] + 3.0)


def test_what_has_no_state_reads_and_replays_nothing() -> None:
    bare = UnitHistory().add(Quantity.DEPLOY, at=1.0, seconds=3.0).add(Quantity.WIRE_SEND, at=1.0, seconds=0.2)
    bare = bare.add(Quantity.WIRE_RECEIVE, at=1.0, seconds=0.3)
    expected = {Quantity.WAIT: 0.0, Quantity.DEPLOY: 9.0}
    found = situation(bare, stateful=False, deadlines=dict.fromkeys(FailureKind, 1.0), expected=expected)
    assert estimate(Scheme.PASSIVE_REPLICATION, found, interval=8.0).seconds == pytest.approx(4.3)


def test_nothing_to_replay_takes_no_time_whatever_the_throughput() -> None:
    found = UnitHistory().add(Quantity.CHECKPOINT_SIZE, at=1.0, amount=5.0)
    found = found.add(Quantity.RECEIVED, at=0.5, seconds=0.5, amount=10.0)
    assert estimate(Scheme.HOT_STANDBY, situation(found, now=2.0)).replay == 0.0
    later = found.add(Quantity.RECEIVED, at=2.0, seconds=1.0, amount=10.0)
    assert estimate(Scheme.HOT_STANDBY, situation(later, now=2.0)).replay is None


def test_reading_goes_at_the_lowest_throughput_recorded() -> None:
    writes = [Measurement(0.0, 1.0, 100.0), Measurement(1.0, 4.0, 100.0), Measurement(2.0, 1.0, 50.0)]
    assert transfer_seconds(200.0, writes) == 8.0
    assert transfer_seconds(200.0, [*writes, Measurement(3.0, 10.0, 100.0)]) == 20.0, "a real recovery was slower"
    assert transfer_seconds(200.0, [*writes, Measurement(3.0, 0.5, 1.0)]) == 8.5, "a request, not a throughput"
    assert transfer_seconds(200.0, []) is None and transfer_seconds(0.0, []) == 0.0


def test_times_tell_their_parts() -> None:
    found = estimate(Scheme.PASSIVE_REPLICATION, situation(UnitHistory()))
    assert found.to_json()["seconds"] is found.to_json()["deploy"] is None
    known = estimate(Scheme.COLD_STANDBY, situation())
    assert known.to_json()["wire_receive"] == 0.3 and known.to_json()["deploy"] == 0.0
    assert RecoveryTimes.from_json(known.to_json()) == known and RecoveryTimes.from_json(found.to_json()) == found
