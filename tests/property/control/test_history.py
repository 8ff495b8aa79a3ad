"""Histories survive the store, and it does not matter who is merged first, or how often."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from afspark.control import FailureKind, Measurement, Quantity, UnitHistory
from afspark.control.history import MOST_MEASUREMENTS

numbers = st.floats(0, 1e12, allow_subnormal=False)
measured = st.sampled_from([Quantity.RECEIVED, Quantity.DEPLOY, FailureKind.FROZEN])
entries = st.lists(st.tuples(measured, st.integers(0, 60), numbers, numbers), max_size=80)


def made(found: list[tuple[Quantity | FailureKind, int, float, float]]) -> UnitHistory:
    history = UnitHistory()
    for what, at, seconds, amount in found:
        history = history.add(what, at=at, seconds=seconds, amount=amount)
    return history


histories = entries.map(made)


@given(histories)
def test_a_history_survives_the_store(found: UnitHistory) -> None:
    assert UnitHistory.from_json(json.loads(json.dumps(found.to_json(), allow_nan=False))) == found


@given(histories, histories, histories)
def test_merging_is_the_same_in_any_order(one: UnitHistory, other: UnitHistory, third: UnitHistory) -> None:
    assert one.merged(other) == other.merged(one)
    assert one.merged(other).merged(third) == one.merged(other.merged(third))
    assert one.merged(one) == one == one.merged(UnitHistory())


@given(entries)
def test_the_newest_are_kept_whatever_the_order(found: list[tuple[Quantity | FailureKind, int, float, float]]) -> None:
    history = made(found)
    for what in {entry[0] for entry in found}:
        all_of_it = sorted({Measurement(float(at), *rest) for one, at, *rest in found if one is what})
        assert list(history.of(what)) == all_of_it[-MOST_MEASUREMENTS:]
