"""Whatever users give to a policy: it works and is plain afterwards, or one line says what it must be."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from afspark.errors import UsageError
from afspark.policies import Adaptive, Approximate, BarrierSnapshot, HotStandby, MiniBatch, Tolerance, UpstreamBackup

NUMBERS: list[Any] = [np.float64(3), np.float32(3), np.int64(3), np.uint8(3), Fraction(3)]
ODD: list[Any] = [
    10**400,
    10**5000,
    -(10**400),
    Decimal(3),
    np.bool_(True),
    np.array(3),
    np.array([3, 4]),
    math.nan,
    -1,
    "3",
    b"3",
    [3],
    3j,
    object(),
    "x" * 10_000,
]
PARAMETERS: list[tuple[type[Tolerance], str]] = [
    *((BarrierSnapshot, name) for name in ("interval", "batches", "items", "full_every", "keep", "unacked")),
    *((Approximate, name) for name in ("theta", "items", "unacked", "items_seconds")),
    (MiniBatch, "unacked"),
    (UpstreamBackup, "unacked"),
    *((HotStandby, name) for name in ("interval", "batches", "items")),
    *((Adaptive, name) for name in ("recovery_seconds", "every", "cooldown", "theta")),
]
CHOICES: list[tuple[type[Tolerance], str]] = [
    *((BarrierSnapshot, name) for name in ("asynchronous", "log_items", "recovery")),
    (MiniBatch, "log_items"),
    (UpstreamBackup, "log_items"),
    (HotStandby, "gap"),
    *((Adaptive, name) for name in ("gap", "costs")),
]


def name_of(given: object) -> str:
    return str(given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__))


def made(policy: type[Tolerance], name: str, value: Any) -> Tolerance:
    needed = {"theta": 1.0} if policy is Approximate else {}
    return policy(**{**needed, name: value})


@pytest.mark.parametrize("value", NUMBERS, ids=name_of)
@pytest.mark.parametrize(("policy", "name"), PARAMETERS, ids=name_of)
def test_any_kind_of_number_is_a_plain_one(policy: type[Tolerance], name: str, value: Any) -> None:
    by_barriers = policy in (BarrierSnapshot, HotStandby)
    counts = name in ("batches", "full_every", "keep") or (by_barriers and name == "items")
    if counts and not isinstance(value, np.integer):
        with pytest.raises(UsageError):
            made(policy, name, value)
        return
    one = made(policy, name, value)
    assert getattr(one, name) == 3 and type(getattr(one, name)) in (int, float)
    assert one == made(policy, name, 3)
    assert json.loads(json.dumps(one.to_json()))[name] == 3


@pytest.mark.parametrize("value", ODD, ids=name_of)
@pytest.mark.parametrize(("policy", "name"), [*PARAMETERS, *CHOICES], ids=name_of)
def test_what_cannot_be_meant_is_refused_in_one_line(policy: type[Tolerance], name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        made(policy, name, value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


def test_a_limit_may_be_larger_than_anything_that_is_counted() -> None:
    assert Approximate(theta=10**30).theta == 1e30
    assert Approximate(theta=math.inf, items=math.inf, unacked=math.inf).theta == math.inf
