"""Operators are refused under a tolerance that could promise nothing for them."""

from __future__ import annotations

import math

import pytest

from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance, refuse_if_unfit


class Plain(Operator):
    pass


class Limited(Operator):
    alpha = 2.0


class Resets(Operator):
    approximable = "resets at a level"


class Refuses(Operator):
    approximable = False


class Senseless(Operator):
    alpha = math.nan


@pytest.mark.parametrize("tolerance", [MiniBatch(), Nothing(), Approximate(0)], ids=str)
@pytest.mark.parametrize("operator", [Plain(), Limited(), Resets(), Refuses()], ids=lambda one: type(one).__name__)
def test_exact_recovery_suits_everyone(operator: Operator, tolerance: Tolerance) -> None:
    refuse_if_unfit(operator, tolerance)


def test_what_is_declared_fit_runs() -> None:
    refuse_if_unfit(Plain(), Approximate(5))
    refuse_if_unfit(Limited(), Approximate(5, items=10))


@pytest.mark.parametrize(
    ("operator", "tolerance", "field", "value"),
    [
        (Resets(), Approximate(5), "reason", "resets at a level"),
        (Refuses(), Approximate(0, unacked=1), "operator", "Refuses"),
        (Plain(), Approximate(5, items=10), "items", 10),
        (Senseless(), MiniBatch(), "operator", "Senseless"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unfit_operators_are_refused(operator: Operator, tolerance: Tolerance, field: str, value: object) -> None:
    with pytest.raises(UsageError) as raised:
        refuse_if_unfit(operator, tolerance)
    assert raised.value.fields[field] == value
    assert raised.value.remedy and "\n" not in str(raised.value)
    if operator.approximable is not True:
        assert "MiniBatch" in raised.value.remedy
