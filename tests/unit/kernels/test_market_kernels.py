"""The kernels of trades and quotes against their plain twins, and what is promised of generated prices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.model.kernels.market_kernels import LEVELS, RECENT, TENTS, meet_averages, sum_recent, walk_at
from tests.twins import market_twin as twin

SYMBOLS = 4
symbol = st.integers(0, SYMBOLS - 1)
price = st.integers(1, 10**6).map(lambda cents: cents / 100)


@given(st.lists(st.tuples(symbol, price, st.integers(1, 10**6)), max_size=60), st.integers(0, 60))
def test_sums_of_recent_trades(trades: list[tuple[int, float, int]], first: int) -> None:
    """Many at once, and in two parts, are as one by one."""
    prices, volumes = np.zeros((SYMBOLS, RECENT)), np.zeros((SYMBOLS, RECENT), np.int64)
    found: list[tuple[float, int]] = []
    for part in (trades[:first], trades[first:]):
        symbols = np.array([one[0] for one in part], np.int32)
        totals, sums = np.empty(len(part)), np.empty(len(part), np.int64)
        given_prices, given_volumes = np.array([one[1] for one in part]), np.array([one[2] for one in part], np.int64)
        sum_recent(symbols, given_prices, given_volumes, prices, volumes, totals, sums)
        found += zip(totals.tolist(), sums.tolist(), strict=True)
    assert found == twin.sum_recent(trades)


@given(st.data())
def test_averages_that_quotes_meet(data: st.DataObject) -> None:
    keys = st.lists(st.integers(0, 40), max_size=30).map(sorted)
    averages = [(key, data.draw(symbol), data.draw(price)) for key in data.draw(keys)]
    quotes = [(key, data.draw(symbol)) for key in data.draw(keys)]
    newest = np.array([data.draw(price | st.just(0.0)) for _ in range(SYMBOLS)])
    expected = twin.meet_averages(averages, quotes, newest.tolist())
    met = np.empty(len(quotes))
    meet_averages(
        np.array([one[0] for one in averages], np.int64),
        np.array([one[1] for one in averages], np.int32),
        np.array([one[2] for one in averages]),
        np.array([one[0] for one in quotes], np.int64),
        np.array([one[1] for one in quotes], np.int32),
        newest,
        met,
    )
    assert (met.tolist(), newest.tolist()) == expected


@given(st.integers(0, 2**64 - 1), st.floats(0, 2**LEVELS, exclude_max=True))
def test_walks(key: int, seconds: float) -> None:
    assert walk_at(np.uint64(key), seconds, TENTS) == pytest.approx(twin.walk_at(key, seconds), rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(("start", "seconds"), [(0.0, 1.0), (100.0, 16.0), (5000.0, 300.0), (700.0, 9_000.0)])
def test_a_walk_goes_as_far_as_a_brownian_motion(start: float, seconds: float) -> None:
    steps = np.array(
        [walk_at(np.uint64(key), start + seconds, TENTS) - walk_at(np.uint64(key), start, TENTS) for key in range(4000)]
    )
    assert abs(steps.mean()) < 4 * math.sqrt(seconds / 4000)
    assert steps.var() == pytest.approx(seconds, rel=0.12)


def test_steps_of_a_walk_are_independent() -> None:
    places = np.array([[walk_at(np.uint64(key), 40.0 + 10 * one, TENTS) for one in range(3)] for key in range(4000)])
    first, second = np.diff(places, axis=1).T
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.07
