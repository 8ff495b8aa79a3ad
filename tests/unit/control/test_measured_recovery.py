"""A real recovery beside its estimate, and what the next estimate learns from it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from afspark.control import FailureKind, MeasuredRecovery, Quantity, RecoveryTimes, Scheme, UnitHistory, estimate
from tests.unit.control.measurements import NOW, UNIT, history, situation


def recovery(measured: RecoveryTimes, scheme: Scheme = Scheme.PASSIVE_REPLICATION, **facts: Any) -> MeasuredRecovery:
    return MeasuredRecovery(
        at=NOW,
        unit=UNIT,
        kind=FailureKind.HOST_LOST,
        protection=scheme,
        estimated=estimate(scheme, situation(), kind=FailureKind.HOST_LOST),
        measured=measured,
        **facts,
    )


SLOW = RecoveryTimes(detection=2.0, deploy=6.0, read=40.0, wire_send=1.0, wire_receive=1.0, replay=1.0)


def test_the_next_estimate_is_no_shorter_than_what_happened() -> None:
    learned = recovery(SLOW, bytes_read=2e9).learned_by(history())
    found = estimate(Scheme.PASSIVE_REPLICATION, situation(learned), kind=FailureKind.HOST_LOST)
    assert (found.detection, found.deploy, found.read, found.wire_send) == (2.0, 6.0, pytest.approx(40.1), 1.0)
    assert estimate(Scheme.ACTIVE_STANDBY, situation(learned), kind=FailureKind.FROZEN).detection == 0.5
    assert learned.longest(Quantity.PROMOTION) == 0.1, "a step that was not taken teaches nothing"


def test_a_late_batch_under_active_replication_is_a_takeover() -> None:
    learned = recovery(RecoveryTimes(promotion=0.7), Scheme.ACTIVE_REPLICATION).learned_by(UnitHistory())
    assert set(learned.series) == {Quantity.TAKEOVER} and learned.longest(Quantity.TAKEOVER) == 0.7
    noticed = recovery(RecoveryTimes(detection=0.6, promotion=0.2), Scheme.ACTIVE_REPLICATION).learned_by(UnitHistory())
    assert noticed.longest(Quantity.TAKEOVER) == pytest.approx(0.8) and noticed.longest(FailureKind.HOST_LOST) == 0.6


def test_how_far_off_the_estimate_was() -> None:
    twice = RecoveryTimes(detection=2 * estimate(Scheme.PASSIVE_REPLICATION, situation()).seconds)
    assert recovery(twice).off_by == pytest.approx(0.5)
    assert recovery(RecoveryTimes(detection=None)).off_by is None
    assert recovery(RecoveryTimes(), Scheme.ACTIVE_REPLICATION).off_by is None


def test_unknown_parts_teach_nothing() -> None:
    assert recovery(RecoveryTimes(detection=None, read=1.0)).learned_by(history()) == history()


def test_it_is_stored() -> None:
    found = recovery(SLOW, bytes_read=2e9)
    assert MeasuredRecovery.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found
