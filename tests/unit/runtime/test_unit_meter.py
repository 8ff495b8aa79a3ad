"""What is measured of a unit: few measurements of many batches, and nothing while nothing comes."""

from __future__ import annotations

import pytest

from afspark.control import Quantity
from afspark.coordinator.adapting.unit_meter import BatchFacts, Capture, UnitMeter

START = 1_000.0


def batch(number: int, ended: float, *, items: float = 100.0, stage: float = 0.1, work: float = 0.06) -> BatchFacts:
    return BatchFacts(batch=number, ended=ended, stage=stage, work=work, items=items, received=10 * items, cpu=0.05)


def steady(seconds: float, every: float = 0.25, **facts: float) -> UnitMeter:
    meter = UnitMeter()
    for number in range(round(seconds / every) + 1):
        meter.batch(batch(number, START + number * every, **facts))
    return meter


def test_short_batches_become_few_measurements_of_the_same_rate() -> None:
    meter = steady(20.0)
    found = meter.at(START + 20.0)
    assert 9 <= len(found.of(Quantity.RECEIVED)) <= 11
    assert found.rate(Quantity.RECEIVED, START + 20.0) == pytest.approx(400.0)
    assert found.peak_rate(Quantity.RECEIVED, START + 20.0) == pytest.approx(400.0, rel=0.2)
    assert found.rate(Quantity.RECEIVED_BYTES, START + 20.0) == pytest.approx(4000.0)
    assert found.rate(Quantity.CPU, START + 20.0) == pytest.approx(0.2)
    assert found.rate(Quantity.PROCESSED, START + 20.0) == pytest.approx(1000.0), "by the seconds of its stages"


def test_nothing_is_received_while_it_is_idle() -> None:
    meter = steady(4.0)
    later = START + 4.0 + 30.0
    assert meter.at(later).rate(Quantity.RECEIVED, later) == 0.0
    assert meter.at(later).rate(Quantity.CPU, later) == 0.0
    assert meter.at(later).rate(Quantity.PROCESSED, later) == pytest.approx(1000.0), "it has not become slower"
    assert meter.history == meter.history.merged(UnitMeter().history), "to ask changes nothing"


def test_what_comes_after_a_pause_came_at_its_end() -> None:
    meter = steady(4.0)
    burst = START + 4.0 + 60.0
    meter.batch(batch(99, burst, items=10_000.0))
    found = meter.at(burst)
    assert found.peak_rate(Quantity.RECEIVED, burst) == pytest.approx(10_000 / 2.0)


def test_long_batches_are_no_pauses() -> None:
    meter = steady(60.0, every=10.0, items=5000.0, stage=9.5, work=9.0)
    found = meter.at(START + 60.0)
    assert found.peak_rate(Quantity.RECEIVED, START + 60.0) == pytest.approx(500.0, rel=0.1)


def test_the_first_batch_tells_how_long_it_takes_to_start_and_nothing_of_the_speed() -> None:
    meter = UnitMeter()
    assert meter.expected(record_seconds=0.1, grace_seconds=3.0) == {}
    meter.batch(batch(0, START, stage=7.0))
    assert meter.at(START + 1).rate(Quantity.PROCESSED, START + 1) is None
    for number in range(1, 5):
        meter.batch(batch(number, START + number))
    expected = meter.expected(record_seconds=0.1, grace_seconds=3.0)
    assert expected[Quantity.DEPLOY] == pytest.approx(6.94)
    assert expected[Quantity.WIRE_SEND] == pytest.approx(0.04)
    assert expected[Quantity.WIRE_RECEIVE] == pytest.approx(0.1), "with a batch, as it is measured"
    assert expected[Quantity.PROMOTION] == pytest.approx(0.1 + 2 * 0.1)
    assert expected[Quantity.WAIT] == 3.0


def test_items_wait_until_a_checkpoint_is_safe_that_has_them() -> None:
    meter = steady(1.0)
    assert meter.waiting is None
    meter.captured(Capture(batch=4, at=START + 1.0, written=50.0, size=200.0, cpu=0.01))
    assert meter.waiting is None and not meter.history.of(Quantity.CHECKPOINT_SIZE), "it is not safe yet"
    for number in (5, 6):
        meter.batch(batch(number, START + 1.0 + number / 4))
    meter.captured(Capture(batch=6, at=START + 2.5, written=70.0, size=220.0))
    meter.covered(3, START + 2.6)
    assert meter.waiting is None
    meter.covered(4, START + 2.6)
    assert meter.waiting == 200.0
    (size,) = meter.history.of(Quantity.CHECKPOINT_SIZE)
    (safe,) = meter.history.of(Quantity.CHECKPOINT_SAFE)
    assert (size.at, size.amount) == (START + 1.0, 200.0)
    assert (safe.amount, safe.seconds) == (50.0, pytest.approx(1.6))
    meter.batch(batch(7, START + 3.0, items=30.0))
    meter.covered(7, START + 3.1)
    assert meter.waiting == 30.0
