"""Theorem 1 of paper 003: the regret of a model that failures throw back stays under its bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds.learning import Risk, average_regret_bound, regret_bound
from afspark.errors import UsageError

# |s - x| on [-1, 1]: gradients of length 1, and models at most |2|²/2 = 2 apart.
ABSOLUTE = Risk(gradient=1.0, diameter=math.sqrt(2))


def regret(items: list[float], failed_after: set[int], *, backup_every: int) -> float:
    """Of stochastic gradient descent that goes back to its last backup after each failure."""
    model = backup = total = 0.0
    for step, item in enumerate(items, start=1):
        total += abs(model - item)
        slope = (model > item) - (model < item)
        model = min(1.0, max(-1.0, model - slope / math.sqrt(step)))
        if step % backup_every == 0:
            backup = model
        if step in failed_after:
            model = backup
    best = min(math.fsum(abs(fixed - item) for item in items) for fixed in items)
    return total - best


@given(
    items=st.lists(st.floats(-1, 1), min_size=1, max_size=200),
    failed_after=st.sets(st.integers(1, 200), max_size=10),
    backup_every=st.integers(1, 50),
)
def test_regret_stays_under_the_bound(items: list[float], failed_after: set[int], backup_every: int) -> None:
    failed = {step for step in failed_after if step <= len(items)}
    bound = regret_bound(ABSOLUTE, steps=len(items), failures=len(failed), constant=0.0)
    assert regret(items, failed, backup_every=backup_every) <= bound + 1e-9


@given(
    steps=st.integers(1, 10**9),
    failures=st.integers(0, 100),
    theta=st.floats(0, 1e6),
    lost=st.integers(0, 1000),
)
def test_the_average_regret_vanishes(steps: int, failures: int, theta: float, lost: int) -> None:
    def average(steps: int) -> float:
        return average_regret_bound(ABSOLUTE, steps=steps, failures=failures, theta=theta, items=lost, alpha=2.0)

    assert average(4 * steps) <= average(steps) / 2 * (1 + 1e-12)


def test_failures_add_the_three_terms_of_appendix_b() -> None:
    risk, root = Risk(gradient=3, diameter=2), 10.0
    calm = regret_bound(risk, steps=100, theta=5, items=4, alpha=2)
    assert calm == (9 + 4) * root
    assert (
        regret_bound(risk, steps=100, failures=2, theta=5, items=4, alpha=2) == 3 * (25 + 2 * 16) + 4 * 2 * root + calm
    )


def test_a_risk_without_limits_is_refused() -> None:
    with pytest.raises(UsageError):
        Risk(gradient=math.nan, diameter=1)
    with pytest.raises(ValueError, match="steps"):
        regret_bound(ABSOLUTE, steps=0)
