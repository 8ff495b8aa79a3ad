"""The precondition of approximate recovery: sound operators pass, each kind of breach is named."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.algorithms import HeavyHitters, WordCount
from afspark.errors import UsageError
from afspark.model.operator import Operator
from afspark.model.preconditions import Flaw, PreconditionBroken, check_operator
from afspark.model.states import HashTable, Matrix, StateSpec


def numbers(batches: int = 4, rows: int = 30) -> list[pa.RecordBatch]:
    random = np.random.default_rng(7)
    return [
        pa.record_batch({"key": random.integers(0, 5, rows), "value": random.integers(1, 10, rows)})
        for _ in range(batches)
    ]


class Counter(Operator):
    """Adds up values by key."""

    alpha = 9.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"sums": HashTable(key="int64", divergence="manhattan")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("key"), items.column("value"))


class Undeclared(Counter):
    alpha = None


class AlphaTooSmall(Counter):
    alpha = 8.0


class Averages(Operator):
    """Keeps an exponential average: differences shrink."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"average": Matrix(rows=1, cols=1, value="float64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        for value in items.column("value").to_pylist():
            states["average"].put_at([0], [0.9 * states["average"].values[0, 0] + 0.1 * value])


class Doubles(Averages):
    """Expansive: every item doubles what was there."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        for value in items.column("value").to_pylist():
            states["average"].put_at([0], [2 * states["average"].values[0, 0] + value])


class ResetsAtALevel(Averages):
    """Starts again from zero whenever the sum reaches 100."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        for value in items.column("value").to_pylist():
            total = states["average"].values[0, 0] + value
            states["average"].put_at([0], [total if total < 100 else 0.0])


class Remembers(Undeclared):
    """Counts in an attribute, which lasts only as long as the instance."""

    def __init__(self) -> None:
        self.total = 0

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.total += items.num_rows
        states["sums"].put([0], [self.total])


class Random(Counter):
    source = itertools.count()

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].put([0], [next(self.source)])


class ManyWords(WordCount):
    alpha = 1.0


def heavy_hitters() -> Operator:
    return HeavyHitters(keys=["key"], weight="value", threshold=50, rows=2, columns=16)


@pytest.mark.parametrize("make", [Counter, Undeclared, Averages, heavy_hitters], ids=lambda make: make.__name__)
def test_sound_operators_pass(make: Any) -> None:
    report = check_operator(make(), numbers())
    assert report.findings == ()
    report.raise_if_broken()
    assert bool(report.unchecked) is (make().alpha is None)


def test_the_largest_change_seen_suggests_alpha() -> None:
    assert check_operator(Undeclared(), numbers()).observed == {"sums": 9.0}
    assert "candidates" not in check_operator(heavy_hitters(), numbers()).observed  # exact: never lost


def test_items_are_counted_before_they_are_combined() -> None:
    lines = pa.record_batch({"value": ["to be or not to be", "that is the question", "", "to to to to"]})
    report = check_operator(ManyWords(), [lines, lines])
    assert report.findings == () and report.observed == {"counts": 1.0}


@pytest.mark.parametrize(
    ("make", "flaw", "state"),
    [
        (AlphaTooSmall, Flaw.ALPHA_TOO_SMALL, "sums"),
        (Doubles, Flaw.EXPANSIVE, "average"),
        (ResetsAtALevel, Flaw.EXPANSIVE, "average"),
        (Remembers, Flaw.HIDDEN_ATTRIBUTES, "sums"),
        (Random, Flaw.NOT_DETERMINISTIC, "sums"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_each_breach_is_named(make: Any, flaw: Flaw, state: str) -> None:
    report = check_operator(make(), numbers())
    assert report.flaws == {flaw}
    assert {finding.state for finding in report.findings} == {state}
    with pytest.raises(PreconditionBroken) as raised:
        report.raise_if_broken()
    assert raised.value.findings == report.findings
    assert flaw in str(raised.value) and type(make()).__name__ in str(raised.value)
    copied = pickle.loads(pickle.dumps(raised.value))
    assert (str(copied), copied.findings) == (str(raised.value), report.findings)


def test_the_operator_given_is_not_used_up() -> None:
    operator = Remembers()
    check_operator(operator, numbers())
    assert operator.total == 0


@pytest.mark.parametrize("batches", [[], [numbers()[0].slice(0, 0)]], ids=["none", "empty"])
def test_without_items_nothing_can_be_said(batches: list[pa.RecordBatch]) -> None:
    with pytest.raises(UsageError):
        check_operator(Counter(), batches)
