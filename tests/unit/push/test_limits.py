"""Limits are checked once, and a pace holds over any stretch of time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import UsageError
from afspark.push.receiver.limits import Limits, Pace


@pytest.mark.parametrize("name", ["message_bytes", "buffer_bytes", "producers", "rows_per_second"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_is_positive(name: str, value: float) -> None:
    with pytest.raises(UsageError) as caught:
        Limits(**{name: value})
    assert caught.value.option == name


def test_the_buffer_is_shared_by_the_lanes() -> None:
    limits = Limits(message_bytes=100, buffer_bytes=300)
    assert [limits.largest_batch(lanes) for lanes in (1, 3, 4)] == [100, 100, 75]


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(0, 500)), max_size=50), st.floats(1, 1000))
def test_a_producer_that_waits_as_told_keeps_the_pace(sends: list[tuple[float, int]], rate: float) -> None:
    pace, now, rows = Pace(rate), 100.0, 0
    for idle, count in sends:
        now += idle
        now += pace.delay(rows=count, now=now)
        rows += count
        assert rows <= rate * (now - 100.0 + 1) * (1 + 1e-9) + 1e-6


def test_without_a_limit_nobody_waits() -> None:
    assert Pace(math.inf).delay(rows=1 << 60, now=0.0) == 0.0
