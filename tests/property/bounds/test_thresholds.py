"""Θ is never spent twice: whatever workers fail in whatever order, what they may lose adds up to at most Θ."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds.thresholds import Place, divides_among_copies, realised, threshold
from afspark.bounds.weights import weights
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import WorkerState
from afspark.errors import UsageError
from afspark.model.states import HashTable
from afspark.policies import Approximate

limits = st.floats(0, 1e12, allow_nan=False)
failures = st.lists(st.integers(0, 7), max_size=60)


@given(limit=limits, copies=st.integers(1, 8), lost=failures)
def test_shares_of_all_copies_stay_below_the_limit(limit: float, copies: int, lost: list[int]) -> None:
    counts: Counter[int] = Counter()
    spent = []
    for worker in (worker % copies for worker in lost):
        spent.append(threshold(limit, failures=counts[worker], place=Place(workers=copies)))
        counts[worker] += 1
    assert realised(spent) <= limit


@given(limit=limits, parts=st.lists(st.floats(0.01, 1), min_size=1, max_size=5), lost=failures)
def test_operators_share_one_limit_by_weight(limit: float, parts: list[float], lost: list[int]) -> None:
    total = math.fsum(parts)
    shares = weights([min(part / total, 1.0) for part in parts])
    counts: Counter[int] = Counter()
    spent = []
    for operator in (number % len(shares) for number in lost):
        spent.append(threshold(limit, failures=counts[operator], place=Place(weight=shares[operator])))
        counts[operator] += 1
    assert realised(spent) <= limit * (1 + 1e-12)


@given(limit=limits, fan_out=st.floats(1, 10), downstream=st.integers(0, 4), count=st.integers(0, 80))
def test_every_failure_halves(limit: float, fan_out: float, downstream: int, count: int) -> None:
    place = Place(fan_out=fan_out, downstream=downstream)
    now = threshold(limit, failures=count, place=place)
    assert threshold(limit, failures=count + 1, place=place) == now / 2
    assert threshold(limit, failures=count, place=place, decaying=True) == threshold(limit, place=place) * 2
    assert now * fan_out**downstream <= limit


@given(
    limit=st.floats(0, 1e9, allow_nan=False),
    keyed=st.booleans(),
    operator_key=st.booleans(),
    divergence=st.sampled_from(["max", "manhattan", "euclidean"]),
    lost=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40),
)
def test_the_bound_the_user_sees_covers_every_history(
    limit: float, keyed: bool, operator_key: bool, divergence: str, lost: list[tuple[int, bool]]
) -> None:
    """Members that fail, with or without having completed a batch since; the norm decides how losses combine."""
    states = {"counts": HashTable(divergence=divergence, operator_key=operator_key)}
    terms = ErrorBudget(tolerance=Approximate(limit), states=states, place=Place(workers=4, keyed=keyed))
    members = [WorkerState.at("a", worker=worker) for worker in range(4)]
    taken = [0.0] * 4
    for worker, completed in lost:
        before = replace(members[worker], completed=int(completed))
        after = before.lost(terms, "b")
        assert after.incarnation == before.incarnation + 1
        if after.failures > before.failures:
            taken[worker] += terms.theta(before.counted_failures)["counts"]
        else:
            assert not completed
        members[worker] = after
    seen = terms.realised([member.counted_failures for member in members])["counts"]
    apart = keyed and operator_key and divergence == "max"
    worst = max(taken) if apart else math.fsum(taken)
    assert seen == pytest.approx(worst)
    assert seen <= limit


@given(count=st.integers(0, 5_000))
def test_a_crash_loop_costs_nothing(count: int) -> None:
    states = {"counts": HashTable(key="string", value="int64")}
    terms = ErrorBudget(tolerance=Approximate(100.0), states=states, place=Place())
    member = WorkerState.at("a", worker=0, completed=1).lost(terms, "a")
    for _ in range(min(count, 50)):
        member = member.lost(terms, "a")
    assert member.failures == 1 and terms.missing(member.counted_failures) == {"counts": 50.0}


@pytest.mark.parametrize("wrong", [{"limit": -1.0}, {"limit": math.nan}, {"failures": -1}], ids=str)
def test_arguments_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limit|failures"):
        threshold(**{"limit": 1.0, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"fan_out": 0.5},
        {"fan_out": math.nan},
        {"fan_out": math.inf},
        {"downstream": -1},
        {"panes": 0},
        {"weight": 0.0},
        {"weight": 1.5},
        {"weight": math.nan},
    ],
    ids=str,
)
def test_places_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        Place(**wrong)
    assert raised.value.fields["name"] == next(iter(wrong))


def test_the_whole_formula() -> None:
    place = Place(workers=2, weight=0.25, fan_out=10, downstream=2, panes=5)
    assert threshold(32_000, failures=3, place=place) == 0.25 * 32_000 / (2 * 2 * 10**2 * 2**3)
    assert (
        threshold(32_000, failures=3, place=place, divergence="max") == threshold(32_000, failures=3, place=place) / 5
    )


def test_only_the_maximum_over_disjoint_keys_is_not_divided() -> None:
    divided = {
        (keyed, divergence): divides_among_copies(keyed=keyed, divergence=divergence)
        for keyed in (False, True)
        for divergence in ("max", "manhattan", "euclidean", "keys")
    }
    assert [case for case, value in divided.items() if not value] == [(True, "max")]
    keyed = Place(workers=4, keyed=True)
    assert [threshold(800, place=keyed, divergence=norm) for norm in ("max", "keys", None)] == [400, 100, 100]
