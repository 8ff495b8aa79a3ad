"""What users can get wrong about a learner is refused before anything runs, or named when it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.api.stream import Stream
from afspark.coordinator import model_servers
from afspark.errors import BadItems, UsageError
from afspark.model.kernels.plain_arrays import Array
from tests.unit.exchange.test_bad_training_items import training
from tests.unit.exchange.test_planted_in_training import ServerHere
from tests.unit.exchange.test_training import SCHEMA, rows


@pytest.fixture(autouse=True)
def servers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)


class _Counting(af.Learner):
    """Its one cell grows with the largest x of a step."""

    cells = 1

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[af.Cells, af.StepFacts]:
        largest = items.column("x").to_numpy().max()
        return af.Cells(np.zeros(1, np.uint32), np.array([largest])), af.StepFacts(items=items.num_rows)


class _Unsized(af.Learner):
    gradient = _Counting.gradient


class _Sized(_Unsized):
    def __init__(self, cells: int) -> None:
        self.cells = cells


class _Idle(af.Learner):
    cells = 3


@pytest.mark.parametrize(
    ("learner", "said", "remedy"),
    [
        (_Counting, "_Counting is a class, not a learner.", "Write _Counting(...)."),
        (None, "None is no learner.", "derived from Learner"),
        (_Unsized(), "does not say how many numbers", "cells = 3"),
        (_Idle(), "does not say how it learns", "gradient"),
    ],
)
def test_what_is_no_learner_is_refused_where_it_is_given(learner: Any, said: str, remedy: str) -> None:
    with pytest.raises(UsageError) as raised:
        af.train(Stream(None, ()), learner, iteration=10)
    assert said in raised.value.message and remedy in raised.value.remedy


def test_a_frame_is_no_stream() -> None:
    with pytest.raises(UsageError, match="DataFrame is no stream") as raised:
        af.train(type("DataFrame", (), {})(), _Counting(), iteration=10)
    assert "read_stream(spark).frame" in raised.value.remedy


def test_the_number_of_cells_may_be_set_in_init() -> None:
    with testing.run(training(_Sized(7)), SCHEMA) as query:
        query.batch(rows(0))
        assert query.results("global")["index"].to_pylist() == [0]


def refused(pipeline: Callable[[Any], Any]) -> UsageError:
    with pytest.raises(UsageError) as raised, testing.run(pipeline, SCHEMA) as query:
        query.batch(rows(0))
    return raised.value


@pytest.mark.parametrize(
    ("numeric", "label", "said"),
    [(("x", "z"), "label", "no column 'z'"), (("x",), "price", "no column 'price'")],
)
def test_least_squares_of_missing_columns_are_refused(numeric: tuple[str, ...], label: str, said: str) -> None:
    assert said in refused(training(af.LinearLearner(numeric, label=label))).message


def test_least_squares_of_texts_are_refused() -> None:
    schema = pa.schema([("label", pa.float64()), ("x", pa.string())])
    with pytest.raises(UsageError, match="'x' is string, not numeric"):
        af.LinearLearner(("x",)).check(schema)


@pytest.mark.parametrize("rate", [0, -1, float("inf")])
def test_a_rate_that_teaches_nothing_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        af.LinearLearner(("x",), rate=rate)


@pytest.mark.parametrize("make", [af.LinearLearner, lambda names: af.Features(numeric=names)])
def test_a_text_is_no_list_of_columns(make: Callable[[Any], Any]) -> None:
    with pytest.raises(UsageError, match="'age'") as raised:
        make("age")
    assert "['age']" in raised.value.remedy


def test_an_item_that_would_leave_no_number_in_the_model_is_left_out() -> None:
    items = rows(1)
    items["x"][100] = np.inf
    with testing.run(training(_Counting()), SCHEMA) as query:
        query.batch(items)
        (kept,) = query.bad_items("local")
        assert kept["row"]["x"] == np.inf and "changes cell 0 of the model by -inf" in kept["error"]
        assert query.results("local")["items"].to_pylist() == [299]
        assert np.isfinite(query.results("global")["weight"].to_numpy()).all()


def test_a_learner_that_raises_on_everything_says_how_to_allow_it() -> None:
    class Raising(_Counting):
        def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[af.Cells, af.StepFacts]:
            raise ValueError("no")

    with pytest.raises(BadItems) as raised, testing.run(training(Raising(), bad_limit=3), SCHEMA) as query:
        query.batch(rows(0))
    assert raised.value.message.startswith("More than 3 items") and raised.value.message.endswith("ValueError: no.")


def test_labels_that_were_read_as_numbers_are_never_a_text() -> None:
    schema = pa.schema([("label", pa.float64()), ("x", pa.float64())])
    with pytest.raises(UsageError, match="never '>50K'") as raised:
        af.Features(positive=">50K", numeric=("x",)).fitted(schema)
    assert "text_label=True" in raised.value.remedy
