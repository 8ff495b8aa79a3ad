"""Items on which a learner raises: the search for them leaves no trace at model servers, and every other item is
learned from once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.features import Features
from afspark.algorithms.linear_learners import LinearLearner, LogisticLearner
from afspark.algorithms.model_training import train
from afspark.coordinator import model_servers
from afspark.errors import OperatorMisuse, UsageError
from afspark.model.consistency import ASP, BSP, Consistency
from afspark.model.kernels.plain_arrays import Array
from afspark.model.learner import Learned, Learner
from afspark.model.training import Cells, StepFacts
from tests.unit.exchange.test_planted_in_training import ServerHere
from tests.unit.exchange.test_training import SCHEMA, model_of, rows


@pytest.fixture(autouse=True)
def servers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)


class _Choosy(LinearLearner):
    """Raises on items that are too large."""

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
        if (items.column("x").to_numpy() > 1000).any():
            raise ValueError("x is too large")
        return super().gradient(model, items)


def training(learner: Learner, **settings: Any) -> Callable[[Any], Any]:
    def pipeline(stream: Any) -> Any:
        given = {"iteration": 40, "tolerance": af.MiniBatch(), "wait_seconds": 5.0} | settings
        return train(stream, learner, **given).writeStream.outputMode("append")

    return pipeline


def with_bad(at: int, value: float) -> dict[str, np.ndarray]:
    items = rows(1)
    items["x"][at] = value
    return items


def learned(pipeline: Callable[[Any], Any], *batches: dict[str, np.ndarray]) -> tuple[Any, dict[str, Any], int]:
    """The model, what workers have counted, and how many items were merged in the last batch."""
    with testing.run(pipeline, SCHEMA) as query:
        for items in batches:
            query.batch(items)
        told = query.items("global")
        assert told is not None
        return model_of(query), query.results("local").to_pylist()[0], sum(told["items"].to_pylist())


def test_whoever_raises_at_the_end_leaves_the_model_of_a_run_without_that_item() -> None:
    without = {name: column[:-1] for name, column in rows(1).items()}
    expected = learned(training(_Choosy(("x", "y"))), rows(0), without)
    assert learned(training(_Choosy(("x", "y"))), rows(0), with_bad(299, 2000.0)) == expected
    assert expected[2] == 299


@pytest.mark.parametrize("consistency", [BSP(), ASP()], ids=str)
def test_an_item_that_is_left_out_is_learned_from_by_nobody_and_others_are_once(consistency: Consistency) -> None:
    pipeline = training(_Choosy(("x", "y")), consistency=consistency)
    with testing.run(pipeline, SCHEMA) as query:
        progress = query.batch(with_bad(100, 2000.0))
        told = query.items("global")
        (kept,) = query.bad_items("local")
    assert told is not None and sum(told["items"].to_pylist()) == 299
    assert sum(one["items"] for one in progress["bad"]) == 1
    assert kept["row"]["x"] == 2000.0
    assert "x is too large" in kept["error"]


@pytest.mark.parametrize(
    ("learner", "value", "said"),
    [
        (LogisticLearner(Features(numeric=("x", "y"))), np.nan, "rows have missing, undefined or unknown values"),
        (_Choosy(("x", "y")), 2000.0, "x is too large"),
    ],
    ids=["missing", "raises"],
)
def test_where_bad_items_stop_the_query_the_first_is_named(learner: Learner, value: float, said: str) -> None:
    with pytest.raises(af.AfsparkError, match=said) as found:
        learned(training(learner, on_bad="stop"), with_bad(150, value))
    assert str(value) in found.value.fields["row"]


class _Wrong(LinearLearner):
    """Gives what ``change`` makes of what it has learned."""

    def __init__(self, change: Callable[[Learned], tuple[Any, ...]]) -> None:
        super().__init__(("x", "y"))
        self.change = change

    def learn(self, model: Array, items: pa.RecordBatch, seen: int) -> Learned:
        return Learned(*self.change(super().learn(model, items, seen)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: (Cells(one.change.index + 1, one.change.values), one.facts), "cell 3 of a model of 3 cells"),
        (lambda one: (Cells(one.change.index[1:], one.change.values), one.facts), "2 cells by an array of the shape"),
        (lambda one: (Cells(one.change.index / 1.0, one.change.values), one.facts), "a flat array of whole numbers"),
        (lambda one: (Cells(one.change.index, one.change.values * 1j), one.facts), "values of the type complex128"),
        (lambda one: (one.change, one.facts, -5), "skipped -5 of 40 items, and learned from 40"),
        (lambda one: (one.change, None), "gives something else than what it has learned"),
        (lambda one: (one.change, StepFacts(items=41)), "learned from 41 of 40 items"),
        (lambda one: (one.change, StepFacts(items=40.0)), "items=40.0"),
    ],
    ids=["cell", "values", "index", "complex", "skipped", "facts", "items", "fraction"],
)
@pytest.mark.some(1)
@pytest.mark.parametrize("shards", [1, 2])
def test_what_no_learner_can_have_learned_stops_the_query_in_one_line(
    change: Callable[[Learned], tuple[Any, ...]], said: str, shards: int
) -> None:
    with pytest.raises(OperatorMisuse, match=said):
        learned(training(_Wrong(change), shards=shards), rows(0))


@pytest.mark.parametrize("on_bad", ["skip", "stop"])
def test_a_learner_that_changes_the_model_that_it_is_given_is_refused(on_bad: str) -> None:
    class InPlace(LinearLearner):
        def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
            found = super().gradient(model, items)
            model -= 0.1
            return found

    with pytest.raises(OperatorMisuse, match="changes an array that it was given"):
        learned(training(InPlace(("x", "y")), on_bad=on_bad), rows(0))


def test_numbers_of_numpy_are_plain_numbers() -> None:
    def plain(one: Learned) -> tuple[Cells, StepFacts]:
        facts = StepFacts(items=np.int64(one.facts.items), correct=np.int32(1), loss=np.float32(one.facts.loss))
        return Cells(one.change.index.astype(np.int64), one.change.values), facts

    _, told, merged = learned(training(_Wrong(plain)), rows(0))
    assert merged == told["items"] == 300


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="loss='much'"):
        StepFacts(items=1, loss="much")  # type: ignore[arg-type]
