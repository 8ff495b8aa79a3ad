"""More state, more items and slower steps never make an estimate shorter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afspark.control import STEPS, FailureKind, Quantity, RecoveryStep, Scheme, Unreplicated, estimate
from tests.unit.control.measurements import NOW, history, situation

protections = st.sampled_from([*Scheme, *Unreplicated])
intervals = st.none() | st.floats(0.1, 100)
sizes = st.floats(0, 1e12)
seconds = st.floats(0, 1e3)
steps = st.sampled_from([Quantity.PROMOTION, Quantity.DEPLOY, Quantity.WIRE_SEND, Quantity.WIRE_RECEIVE, *FailureKind])


@given(protections, intervals, st.booleans(), sizes, sizes)
def test_more_state_takes_no_less(
    protection: Scheme | Unreplicated, interval: float | None, gap: bool, one: float, other: float
) -> None:
    small, large = (
        estimate(protection, situation(history(state=state)), gap=gap, interval=interval)
        for state in sorted([one, other])
    )
    assert small.seconds <= large.seconds
    if RecoveryStep.READ not in STEPS[protection]:
        assert small == large


@given(protections, intervals, st.booleans(), st.floats(0, 1e9), st.floats(0, 1e9))
def test_more_items_take_no_less(
    protection: Scheme | Unreplicated, interval: float | None, gap: bool, one: float, other: float
) -> None:
    few, many = (
        estimate(protection, situation(history(items=items)), gap=gap, interval=interval)
        for items in sorted([one, other])
    )
    assert few.seconds <= many.seconds
    if RecoveryStep.REPLAY not in STEPS[protection] or (gap and isinstance(protection, Scheme)):
        assert few == many


@given(protections, st.floats(0.1, 100), st.floats(0.1, 100))
def test_longer_intervals_take_no_less(protection: Scheme | Unreplicated, one: float, other: float) -> None:
    short, long = (estimate(protection, situation(), interval=apart) for apart in sorted([one, other]))
    assert short.seconds <= long.seconds


@given(protections, steps, seconds)
def test_another_measurement_of_a_step_makes_nothing_faster(
    protection: Scheme | Unreplicated, step: Quantity | FailureKind, took: float
) -> None:
    slower = history().add(step, at=NOW, seconds=took)
    assert estimate(protection, situation(slower)).seconds >= estimate(protection, situation()).seconds


@given(sizes, st.floats(0, 1e6), st.floats(1, 1e6), st.booleans(), intervals)
def test_more_prepared_schemes_are_faster(
    state: float, items: float, throughput: float, gap: bool, interval: float | None
) -> None:
    """In the order of table 1, apart from the promotion that it leaves out."""
    times = {Quantity.PROMOTION: 0.0}
    found = situation(history(state=state, items=items, throughput=throughput, times=times))
    seconds = [estimate(scheme, found, gap=gap, interval=interval).seconds for scheme in Scheme]
    assert seconds == sorted(seconds)
