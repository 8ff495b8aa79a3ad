"""Tolerance policies: which threshold is in force, and what is promised."""

from __future__ import annotations

import math
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.errors import UsageError
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance, UpstreamBackup

ITEMS: dict[str, Any] = {"failures": 1, "place": Place(workers=4)}
CASE: dict[str, Any] = {**ITEMS, "divergence": "max", "exact": False}


@pytest.mark.parametrize(
    ("policy", "allowance", "promise", "recovers"),
    [
        (Nothing(), math.inf, None, False),
        (MiniBatch(), 0.0, 0.0, True),
        (Approximate(800.0), 50.0, 800.0, True),
        (Approximate(0), 0.0, 0, True),
        (Approximate(math.inf), math.inf, math.inf, True),
    ],
    ids=str,
)
def test_policies(policy: Tolerance, allowance: float, promise: float | None, recovers: bool) -> None:
    assert policy.allowance(**CASE) == allowance
    assert policy.promise() == promise and policy.needs_records is recovers
    assert policy.to_json()["name"] == policy.name


def test_exact_states_are_exact_unless_nothing_is_kept() -> None:
    exact = {**CASE, "exact": True}
    assert Approximate(800.0).allowance(**exact) == MiniBatch().allowance(**exact) == 0.0
    assert Nothing().allowance(**exact) == math.inf


@pytest.mark.parametrize(
    ("keyed", "divergence", "copies"),
    [(False, "max", 4), (True, "max", 1), (True, "manhattan", 4), (False, "euclidean", 4)],
)
def test_copies_share_a_limit_where_their_errors_add_up(keyed: bool, divergence: str, copies: int) -> None:
    place = Place(workers=4, keyed=keyed)
    allowance = Approximate(800.0).allowance(failures=0, place=place, divergence=divergence, exact=False)
    assert allowance == 800.0 / 2 / copies


@pytest.mark.parametrize(
    ("policy", "items", "unacked"),
    [
        (Nothing(), math.inf, math.inf),
        (MiniBatch(), 0.0, 0.0),
        (MiniBatch(unacked=400), 0.0, 100.0),
        (UpstreamBackup(), 0.0, math.inf),
        (UpstreamBackup(log_items=True), 0.0, math.inf),
        (Approximate(800.0), 0.0, 0.0),
        (Approximate(0, items=1600, unacked=16), 100.0, 1.0),
    ],
    ids=str,
)
def test_items_have_their_own_limits(policy: Tolerance, items: float, unacked: float) -> None:
    assert policy.items_allowance(**ITEMS) == items
    assert policy.unacked_allowance(**ITEMS) == unacked


def test_keys_that_are_disjoint_do_not_help_items() -> None:
    place = Place(workers=4, keyed=True)
    assert Approximate(0, items=8, unacked=80).items_allowance(failures=0, place=place) == 1
    assert Approximate(0, items=8, unacked=80).unacked_allowance(failures=0, place=place) == 10


def test_nothing_is_halved_where_errors_fade() -> None:
    policy = Approximate(800.0, items=40, unacked=4)
    assert policy.allowance(**CASE, decaying=True) == 200.0
    assert policy.items_allowance(**ITEMS, decaying=True) == 10.0
    assert policy.unacked_allowance(**ITEMS, decaying=True) == 1.0


def test_the_promise_covers_lost_items_once_their_effect_is_known() -> None:
    policy = Approximate(800.0, items=40)
    assert policy.promise(alpha=2.5) == 900.0
    assert policy.promise() is None
    assert Approximate(800.0).promise() == Approximate(800.0).promise(alpha=3) == 800.0
    assert MiniBatch().promise(alpha=3) == 0.0 and Nothing().promise(alpha=3) is None


def test_zero_everywhere_is_exact() -> None:
    assert not Approximate(0).approximates
    assert Approximate(0, items=1).approximates and Approximate(0, unacked=1).approximates
    assert not MiniBatch().approximates and not Nothing().approximates


def test_items_are_with_their_sender_or_in_the_log() -> None:
    """Kept upstream until their effect is durable, or logged before a worker gets them; by default of neither kind."""
    kinds = [
        (policy.keeps_upstream, policy.logs_first)
        for policy in (Nothing(), Approximate(1), MiniBatch(), UpstreamBackup(), UpstreamBackup(log_items=True))
    ]
    assert kinds == [(False, False), (False, False), (False, False), (True, False), (False, True)]
    assert MiniBatch(log_items=True).logs_first
    assert UpstreamBackup(log_items=True).to_json() == {"name": "upstream", "log_items": True}
    with pytest.raises(UsageError) as raised:
        MiniBatch(unacked=-1)
    assert raised.value.fields["unacked"] == -1


@pytest.mark.parametrize("limit", ["theta", "items", "unacked"])
@pytest.mark.parametrize("value", [-1, -math.inf, math.nan, "5", None, True], ids=str)
def test_a_limit_is_a_number_of_at_least_zero(limit: str, value: Any) -> None:
    with pytest.raises(UsageError) as raised:
        Approximate(**{"theta": 1.0, limit: value})
    assert limit in raised.value.fields and raised.value.remedy and "\n" not in str(raised.value)
