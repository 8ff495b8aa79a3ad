"""Measurements: what is remembered, and that nothing measured is not nothing."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from afspark.control import FailureKind, Measurement, Quantity, UnitHistory
from afspark.control.history import MOST_MEASUREMENTS, RECENT_SECONDS
from tests.unit.control.measurements import NOW, history

ODD = [math.nan, math.inf]


def received(*amounts: float, start: float = 0.0, seconds: float = 1.0) -> UnitHistory:
    found = UnitHistory()
    for number, amount in enumerate(amounts, 1):
        found = found.add(Quantity.RECEIVED, at=start + number * seconds, seconds=seconds, amount=amount)
    return found


@pytest.mark.parametrize("what", [*Quantity, *FailureKind])
def test_nothing_measured_is_unknown(what: Quantity | FailureKind) -> None:
    empty = UnitHistory()
    assert empty.newest(what) is empty.longest(what) is empty.rate(what, 0.0) is empty.peak_rate(what, 0.0) is None
    assert empty.amount_since(what, 0.0) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("seconds", -1.0), ("amount", -1.0), *((name, value) for name in ("at", "seconds", "amount") for value in ODD)],
)
def test_what_cannot_be_measured(name: str, value: float) -> None:
    with pytest.raises(ValueError, match="measurements"):
        UnitHistory().add(Quantity.READ, **{"at": 1.0, name: value})


def test_memory_is_bounded_and_the_newest_stay() -> None:
    found = received(*range(1, 1_000))
    assert len(found.of(Quantity.RECEIVED)) == MOST_MEASUREMENTS
    assert found.newest(Quantity.RECEIVED) == Measurement(999.0, 1.0, 999.0)
    for what in (*Quantity, *FailureKind):
        for number in range(100):
            found = found.add(what, at=1.7e9 + number / 7, seconds=number / 7, amount=1e9 + number / 7)
    assert len(json.dumps(found.to_json())) < 50_000


def test_an_old_extreme_is_forgotten_in_the_end() -> None:
    found = UnitHistory().add(Quantity.DEPLOY, at=0.0, seconds=60.0)
    for at in range(1, MOST_MEASUREMENTS):
        found = found.add(Quantity.DEPLOY, at=at, seconds=1.0)
    assert found.longest(Quantity.DEPLOY) == 60.0
    assert found.add(Quantity.DEPLOY, at=100.0, seconds=1.0).longest(Quantity.DEPLOY) == 1.0


def test_rates_are_those_of_the_present() -> None:
    found = received(*[1_000.0] * 10, *[100.0, 300.0] * 5)
    assert found.rate(Quantity.RECEIVED, 20.0) == 200.0 and found.peak_rate(Quantity.RECEIVED, 20.0) == 300.0
    long_after = 20.0 + 10 * RECENT_SECONDS
    assert found.rate(Quantity.RECEIVED, long_after) == 300.0, "the newest, if nothing is recent"
    assert UnitHistory().add(Quantity.RECEIVED, at=1.0, amount=5.0).rate(Quantity.RECEIVED, 1.0) is None


def test_what_came_since_a_moment() -> None:
    found = received(1.0, 2.0, 3.0, 4.0)
    assert found.amount_since(Quantity.RECEIVED, 2.0) == 7.0
    assert found.amount_since(Quantity.RECEIVED, 2.5) == 7.0, "a measurement is not divided"
    assert found.amount_since(Quantity.RECEIVED, 4.0) == 0.0
    assert found.amount_since(Quantity.RECEIVED, -100.0) == 10.0, "there was nothing before the first"


def test_what_is_forgotten_is_not_taken_for_nothing() -> None:
    found = received(*[10.0] * 100)
    assert found.amount_since(Quantity.RECEIVED, 0.0) == 1_000.0
    assert found.amount_since(Quantity.RECEIVED, 100.0 - MOST_MEASUREMENTS) == 10.0 * MOST_MEASUREMENTS


def test_a_new_unit_borrows_times_and_no_load() -> None:
    own = UnitHistory().add(Quantity.DEPLOY, at=1.0, seconds=9.0)
    found = own.completed_by(history())
    assert found.longest(Quantity.DEPLOY) == 9.0, "its own measurement counts"
    assert found.longest(Quantity.WIRE_SEND) == 0.2 and found.longest(FailureKind.FROZEN) == 0.5
    for load in (Quantity.RECEIVED, Quantity.CHECKPOINT_SIZE, Quantity.CHECKPOINT_WRITE, Quantity.CPU):
        assert found.of(load) == ()


def test_the_stored_form_is_a_contract() -> None:
    found = UnitHistory().add(Quantity.READ, at=3, seconds=0.5, amount=8).add(FailureKind.FROZEN, at=4, seconds=2)
    assert found.to_json() == {"read": [[3.0, 0.5, 8.0]], "frozen": [[4.0, 2.0, 0.0]]}
    assert UnitHistory.from_json(json.loads(json.dumps(history().to_json()))) == history()


@pytest.mark.parametrize(
    "document", [{"speed": [[1.0, 1.0, 1.0]]}, {"read": [[1.0, -1.0, 1.0]]}, {"read": [[1, 2, 3, 4]]}, {"read": 5}]
)
def test_other_documents_are_refused(document: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        UnitHistory.from_json(document)


def test_merging_knows_what_either_knew() -> None:
    before, after = received(1.0, 2.0), received(3.0, start=2.0).add(FailureKind.FROZEN, at=NOW, seconds=1.0)
    both = before.merged(after)
    assert both.amount_since(Quantity.RECEIVED, 0.0) == 6.0 and both.longest(FailureKind.FROZEN) == 1.0
    assert both.merged(before) == both == after.merged(before)
