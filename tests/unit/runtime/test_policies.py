"""Tolerance policies: which threshold is in force, and what is promised."""

from __future__ import annotations

import math
from typing import Any

import pytest

from afspark.errors import UsageError
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance

CASE: dict[str, Any] = {"failures": 1, "workers": 4, "keyed": False, "divergence": "max", "exact": False}


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
    assert policy.promise() == promise and policy.recovers is recovers
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
    allowance = Approximate(800.0).allowance(**{**CASE, "failures": 0, "keyed": keyed, "divergence": divergence})
    assert allowance == 800.0 / 2 / copies


@pytest.mark.parametrize("theta", [-1, -math.inf, math.nan])
def test_a_limit_is_a_number_of_at_least_zero(theta: float) -> None:
    with pytest.raises(UsageError):
        Approximate(theta)
