"""Thresholds in force, and their explanation."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from afspark.bounds import Place
from afspark.model.states import HashTable, Matrix
from afspark.policies import Approximate, MiniBatch, Nothing, thresholds_in_force

COUNTS = {"counts": HashTable()}
STATES = {
    "counts": HashTable(operator_key=True),
    "others": HashTable(),
    "sums": Matrix(rows=1, cols=2, divergence="manhattan"),
    "seen": HashTable(exact=True),
}


def why(**facts: Any) -> str:
    given = {"tolerance": Approximate(10_000), "states": COUNTS, "place": Place(), **facts}
    return thresholds_in_force(**given).why


def test_values_are_those_of_the_policy() -> None:
    place = Place(workers=4, keyed=True, weight=0.5)
    found = thresholds_in_force(Approximate(1600, items=160, unacked=16), STATES, failures=1, place=place)
    assert found.theta == {"counts": 200.0, "others": 50.0, "sums": 50.0, "seen": 0.0}
    assert (found.items, found.unacked) == (5.0, 0.5)
    assert json.loads(json.dumps(found.to_json()))["theta"] == found.theta


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, "all of 10000, halved for safety"),
        (
            {"failures": 2, "place": Place(workers=2, weight=1 / 3)},
            "1/3 of 10000 by weight, halved for safety, shared by 2 workers, halved again for each of 2 failures",
        ),
        (
            {"place": Place(weight=0.123456, fan_out=10, downstream=2)},
            "0.123 of 10000 by weight, halved for safety, divided by 100 for 2 operators downstream with up to 10 "
            "outputs per item",
        ),
        (
            {"states": STATES, "place": Place(workers=2, keyed=True)},
            "all of 10000, halved for safety, shared by 2 workers except for counts, whose keys are disjoint, "
            "0 for seen, which must be exact",
        ),
        (
            {"failures": 1, "place": Place(panes=5)},
            "all of 10000, halved for safety, divided among the 5 panes of a window, halved again for 1 failure",
        ),
        ({"failures": 9, "decaying": True}, "all of 10000, not halved by failures because old errors fade"),
        ({"tolerance": MiniBatch(), "failures": 3}, "every change and every item is backed up"),
        ({"tolerance": Nothing()}, "nothing is backed up"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(value),
)
def test_every_factor_is_explained(facts: dict[str, Any], text: str) -> None:
    assert why(**facts) == text


def test_without_backups_nothing_is_limited() -> None:
    found = thresholds_in_force(Nothing(), STATES, place=Place())
    assert {*found.theta.values(), found.items, found.unacked} == {math.inf}
