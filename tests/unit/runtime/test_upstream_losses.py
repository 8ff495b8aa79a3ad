"""What a user is told of an operator behind others that have lost something."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import afspark as af
from afspark import testing
from afspark.api.inspection import inspect

WORDS = pa.schema({"word": pa.string()})
ITEMS = {"word": ["a", "b", "c"]}


class Seen(af.Operator):
    """Counts words, and sends them on."""

    key = ("word",)
    sends_by_state = False

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"seen": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        states["seen"].add(items.column("word"), 1)
        return items


class Dedup(Seen):
    """Sends on words that it has not seen before, which depends on what it has not lost."""

    sends_by_state = True

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        super().process(items, states)
        return items.filter(pc.equal(pa.array(states["seen"].get(items.column("word"))), 1))


def behind(first: af.Operator, tolerance: af.Tolerance) -> Any:
    """Words, the operator, an exact count of what it sends, and a count of the words themselves."""

    def pipeline(words: af.Stream) -> list[af.StatefulStream]:
        sent = words.apply(first, name="first", keyed=True, tolerance=tolerance)
        passed = sent.apply(Seen(), name="passed", keyed=True, tolerance=af.MiniBatch())
        beside = words.apply(Seen(), name="beside", keyed=True, tolerance=af.MiniBatch())
        return [passed.apply(Seen(), name="last", keyed=True, tolerance=af.MiniBatch()), beside]

    return pipeline


def lose(query: testing.LocalQuery) -> dict[str, Any]:
    query.batch(ITEMS)
    for worker in (0, 1):
        query.kill_worker("first", worker, "between", lose_state=True)
    return query.batch(ITEMS)


def counts(query: testing.LocalQuery, operator: str) -> set[int]:
    return set(query.results(operator).column(1).to_pylist())


@pytest.mark.parametrize("tolerance", [af.Nothing(), af.Approximate(theta=400)], ids=lambda one: one.name)
def test_what_an_operator_upstream_lost_is_told(tolerance: af.Tolerance) -> None:
    """An exact operator counts twice what an operator upstream has forgotten, and sent again."""
    told = math.inf if isinstance(tolerance, af.Nothing) else 0.0
    with testing.run(behind(Dedup(), tolerance), WORDS) as query:
        assert query.upstream_losses("last") == []
        progress = lose(query)
        assert counts(query, "last") == {2}, "without failures: 1"
        for _ in ("this driver", "the next one"):
            for name in ("passed", "last"):
                assert query.upstream_losses(name) == ["first"]
                assert query.bounds(name) == {"seen": told}
            for name in ("first", "beside"):
                assert query.upstream_losses(name) == []
            assert query.bounds("beside") == {"seen": 0.0}
            query.restart_driver()
        assert progress["upstream"] == {"passed": ["first"], "last": ["first"]}
        found = inspect(query._folder / "checkpoint")
        assert found.operator("last").upstream == ("first",) and found.operator("beside").upstream == ()
        assert found.operator("last").bounds == {"seen": told}


@pytest.mark.parametrize("tolerance", [af.Nothing(), af.Approximate(theta=400)], ids=lambda one: one.name)
def test_what_does_not_depend_on_what_was_lost_is_exact(tolerance: af.Tolerance) -> None:
    with testing.run(behind(Seen(), tolerance), WORDS) as query:
        lose(query)
        assert counts(query, "last") == {2}
        assert query.upstream_losses("last") == [] and query.bounds("last") == {"seen": 0.0}
        assert query.bounds("first")["seen"] > 0


def test_an_exact_operator_upstream_has_lost_nothing() -> None:
    with testing.run(behind(Dedup(), af.MiniBatch()), WORDS) as query:
        lose(query)
        assert len(query.ledger()) == 2 and counts(query, "last") == {1}
        assert query.upstream_losses("last") == [] and query.bounds("last") == {"seen": 0.0}
