"""What linear learners make of a step, and what they refuse before the first one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.linear_learners import LinearLearner, LogisticLearner
from afspark.errors import UsageError
from afspark.model.learner import Learner
from afspark.model.training import Cells

COLUMNS = pa.schema([("label", pa.float64()), ("x", pa.float32()), ("n", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize("seen", [1, 9, 10_000])
def test_steps_of_least_squares_shrink_with_the_root_of_the_items(seen: int) -> None:
    gradient = Cells(np.arange(2, dtype=np.uint32), np.array([3.0, -6.0]))
    default = Learner().apply(gradient, seen)
    assert default.values == pytest.approx(-gradient.values / math.sqrt(seen))
    found = LinearLearner(("x",), rate=0.5).apply(gradient, seen)
    assert found.index.tolist() == [0, 1]
    assert found.values == pytest.approx(0.5 * default.values)


def test_a_step_of_least_squares_is_the_mean_gradient_after_its_items() -> None:
    items = pa.record_batch({"label": [1.0, 2.0, math.nan], "x": [2.0, 4.0, 1.0]})
    learned = LinearLearner(("x",), rate=2.0).learn(np.zeros(2), items, 2)
    # (bias, x): the errors are -1 and -2, of two items after two others.
    assert learned.change.values == pytest.approx([2.0 / 2.0 * 1.5, 2.0 / 2.0 * 5.0])
    assert (learned.facts.items, learned.facts.loss, learned.skipped) == (2, 2.5, 1)


@pytest.mark.parametrize("rate", [0, -1.0, math.nan, math.inf, "0.1", None])
@pytest.mark.parametrize(
    "make", [lambda rate: LinearLearner(("x",), rate=rate), lambda rate: LogisticLearner(rate=rate)]
)
def test_a_rate_that_nobody_can_learn_at_is_refused(make: Any, rate: Any) -> None:
    with pytest.raises(UsageError, match="learning rate must be a number above 0"):
        make(rate)


@pytest.mark.parametrize(
    ("learner", "said"),
    [
        (LinearLearner(("x", "m")), "There is no column 'm'; the stream has label, x, n, name"),
        (LinearLearner(("x",), label="y"), "There is no column 'y'"),
        (LinearLearner(("x", "name")), "Column 'name' is string, not numeric"),
    ],
    ids=["column", "label", "text"],
)
def test_columns_that_do_not_fit_are_refused_before_the_first_batch(learner: Learner, said: str) -> None:
    def start() -> None:
        with testing.run(lambda stream: af.train(stream, learner, iteration=5, tolerance=af.MiniBatch()), COLUMNS):
            pass

    with pytest.raises(UsageError, match=said):
        start()


def test_columns_of_all_kinds_of_numbers_fit() -> None:
    LinearLearner(("x", "n")).check(COLUMNS)
    LinearLearner(("x", "n")).check(None)
