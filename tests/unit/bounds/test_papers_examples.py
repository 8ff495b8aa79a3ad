"""The worked examples of the papers' appendix A, number by number."""

from __future__ import annotations

import math

import pytest

from afspark.bounds.general import state_bound
from afspark.bounds.join_bounds import lost_samples
from afspark.bounds.sketch_bounds import HeavyKeys
from afspark.errors import UsageError
from tests.unit.bounds.papers import false_report_chance, join_error, provably_light_below

MB, GB = 2**20, 2**30

# 000 and 003, A.1: U = 40 GB, φ = 10 MB, δ = 1/16, ε = 1/2; α = 1,500, L = 10^3, Θ = 10^5
FLOWS = HeavyKeys(total=40 * GB, threshold=10 * MB, epsilon=1 / 2, delta=1 / 16)
LIMITS = {"theta": 1e5, "items": 1e3, "alpha": 1500}


def test_count_min_sketch_dimensions() -> None:
    assert (FLOWS.rows, FLOWS.columns) == (4, 8192)  # "r = 4 and w = 8192"


def test_count_min_sketch_without_failures() -> None:
    assert FLOWS.light_below() == 5 * MB  # "any non-HH less than 5 MB"


def test_count_min_sketch_with_failures() -> None:
    assert FLOWS.light_below(**LIMITS) / MB == pytest.approx(3.5, abs=0.05)  # "sizes less than 3.5 MB"


def test_markov_alone_needs_twice_the_papers_width() -> None:
    excess = FLOWS.epsilon * FLOWS.threshold
    chance = {
        columns: false_report_chance(excess=excess, total=FLOWS.total, rows=4, columns=columns)
        for columns in (8192, 16384)
    }
    assert chance == {8192: 1.0, 16384: FLOWS.delta}
    assert provably_light_below(FLOWS, columns=16384, **LIMITS) == FLOWS.light_below(**LIMITS)
    assert provably_light_below(FLOWS, columns=8192) <= 0


def test_no_excess_is_certain() -> None:
    assert false_report_chance(excess=0, total=1, rows=4, columns=10) == 1.0


def test_ripple_join() -> None:
    # 000 and 003, A.2: 10^8 sampled items, Θ = 10^5, L = 10^3, Γ = 10^3, β = 100
    lost = {"theta": 1e5, "items": 1e3, "unacked": 1e3, "fan_out": 100}
    assert join_error(1e8) == 1 / 10_000  # "less than z/10,000"
    assert lost_samples(**lost) == 201_000  # "loses at most 201,000"
    assert math.floor(1 / join_error(1e8, **lost)) == 9_989  # "to z/9,989" (003; misprinted in 000)
    assert join_error(1e8, z=3, **lost) == pytest.approx(3 * join_error(1e8, **lost))


def test_a_join_that_may_lose_every_sample_promises_nothing() -> None:
    assert join_error(100, theta=100) == math.inf


def test_general_bound() -> None:
    assert state_bound(1e5, items=1e3, alpha=1500) == 1.6e6
    assert state_bound(5, items=0, alpha=math.inf) == 5  # nothing of anything


@pytest.mark.parametrize(
    "wrong", [{"total": 0}, {"threshold": math.nan}, {"epsilon": 0}, {"epsilon": 2}, {"delta": 0}, {"delta": 1}]
)
def test_a_sketch_without_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        HeavyKeys(**{"total": 10.0, "threshold": 1.0, **wrong})
