"""Operators divide one budget."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds.weights import weights
from afspark.errors import UsageError


@given(st.integers(1, 500))
def test_without_weights_all_get_the_same_part(count: int) -> None:
    assert weights([None] * count) == (1 / count,) * count
    assert math.fsum(weights([None] * count)) <= 1


@given(st.lists(st.none() | st.floats(0.01, 0.1), min_size=1, max_size=9))
def test_given_weights_stay_and_the_rest_is_shared(wanted: list[float | None]) -> None:
    found = weights(wanted)
    assert all(weight in (None, got) for weight, got in zip(wanted, found, strict=True))
    assert math.fsum(found) <= 1 + 1e-12
    assert all(weight > 0 for weight in found)


def test_rounding_is_forgiven() -> None:
    assert weights([0.7, 0.2, 0.1]) == (0.7, 0.2, 0.1)


@pytest.mark.parametrize("wrong", [[0], [-0.5], [1.5], [math.nan], [0.6, 0.6], [0.5, 0.5, None], [1.0, None]], ids=str)
def test_weights_that_overspend_are_refused(wrong: list[float | None]) -> None:
    with pytest.raises(UsageError) as raised:
        weights(wrong)
    assert raised.value.remedy and "\n" not in str(raised.value)
