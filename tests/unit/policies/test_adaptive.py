"""A limit instead of a scheme: what users may ask for, and what follows whatever is chosen."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.policies import (
    ActiveReplication,
    Adaptive,
    Approximate,
    BarrierSnapshot,
    Costs,
    refuse_if_unfit,
)
from afspark.policies.replication import SCHEMES, Followed

COSTS = ["cpu", "memory", "network", "hosts"]
CASE: dict[str, Any] = {"failures": 2, "place": Place(workers=4), "divergence": "max", "exact": False}


class Resets(Operator):
    approximable = "resets at a level"


def test_what_comes_by_itself() -> None:
    one = Adaptive()
    assert (one.recovery_seconds, one.every, one.gap, one.theta) == (5, 0.5, False, None)
    assert one.costs == Costs() == Costs(cpu=1, memory=0, network=1, hosts=10)
    assert one.cooldown > one.every


@pytest.mark.parametrize(
    "value", [-1, -0.5, math.nan, math.inf, -math.inf, "1", None, True, 10**400, [1], 1e308], ids=repr
)
@pytest.mark.parametrize("name", COSTS)
def test_a_cost_is_a_finite_number_of_at_least_zero(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Costs(**{name: value})
    assert name in caught.value.fields and name in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_cost_is_named_with_those_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        Costs(cpu=1, gpu=3)
    assert caught.value.unknown == ["gpu"] and all(name in caught.value.remedy for name in COSTS)
    assert "\n" not in str(caught.value)


def test_costs_are_values() -> None:
    one = Costs(cpu=0, hosts=2.5)
    assert one == Costs(hosts=2.5, cpu=0) != Costs() and hash(one) == hash(Costs(cpu=0, hosts=2.5))
    with pytest.raises(AttributeError):
        one.cpu = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        Costs(1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("recovery_seconds", value) for value in (0, -1, math.nan, math.inf, "5", None)),
        *(("every", value) for value in (0, -1, math.nan, math.inf)),
        *(("cooldown", value) for value in (-1, math.nan, math.inf, "5")),
        *(("gap", value) for value in (0, None, "yes")),
        *(("theta", value) for value in (-1, math.nan, "5")),
        *(("costs", value) for value in (None, {"cpu": 1}, 3)),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Adaptive(**{name: value})
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_every_choice_of_the_controller_is_a_tolerance() -> None:
    one = Adaptive(gap=True, theta=7)
    for scheme in SCHEMES:
        chosen = one.chosen(scheme.name, 4.0)
        assert isinstance(chosen, scheme) and chosen.gap
        assert chosen.rarely.barrier_seconds == 4.0
        assert chosen.barrier_seconds == (1.0 if isinstance(chosen, Followed) else 4.0), "without a secondary"
    assert one.chosen("snapshot", 2.0) == BarrierSnapshot(interval=2.0)
    error = one.chosen("approximate")
    assert isinstance(error, Approximate) and (error.theta, error.replays) == (7, True)
    assert one.first == ActiveReplication(gap=True, store_every=1)
    with pytest.raises(KeyError):
        Adaptive().chosen("approximate")


@pytest.mark.parametrize(
    ("one", "exact", "promise"),
    [
        (Adaptive(), True, 0.0),
        (Adaptive(theta=0), True, 0.0),
        (Adaptive(theta=9), False, 9.0),
        (Adaptive(gap=True), False, None),
        (Adaptive(gap=True, theta=9), False, None),
    ],
    ids=repr,
)
def test_what_is_promised_whatever_is_chosen(one: Adaptive, exact: bool, promise: float | None) -> None:
    assert one.exact is exact and one.promise() == promise
    assert one.allowance(**CASE) == one.first.allowance(**CASE)
    assert one.replays and one.keeps_upstream


def test_an_operator_that_approximation_would_break_is_refused() -> None:
    refuse_if_unfit(Resets(), Adaptive())
    with pytest.raises(UsageError) as caught:
        refuse_if_unfit(Resets(), Adaptive(theta=5))
    assert caught.value.fields["reason"] == "resets at a level"


def test_it_tells_what_was_chosen() -> None:
    told = json.loads(json.dumps(Adaptive(theta=3, costs=Costs(memory=2)).to_json(), allow_nan=False))
    costs = {"cpu": 1, "memory": 2, "network": 1, "hosts": 10}
    assert told == {
        "name": "adaptive",
        "recovery_seconds": 5,
        "every": 0.5,
        "cooldown": 10,
        "gap": False,
        "theta": 3,
        "costs": costs,
    }
