"""Learners of linear models: logistic regression item by item, and least squares by the mean gradient of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from afspark.algorithms.features import Features, ItemLearner
from afspark.algorithms.stream_columns import column_type
from afspark.errors import UsageError
from afspark.model.column_names import column_names
from afspark.model.kernels.plain_arrays import Array, as_array
from afspark.model.learner import Learned, Learner, difference
from afspark.model.training import Cells, ConvexLoss, StepFacts


class LogisticLearner(Learner):
    """Logistic regression: one gradient step an item, of ``rate / sqrt(t)``, where t numbers the worker's items."""

    def __init__(self, features: Features | None = None, *, rate: float = 1.0) -> None:
        self.features, self.rate = features or Features(), _checked(rate)

    @property
    def reach(self) -> float:  # type: ignore[override]
        """The most that one row can change a cell."""
        return self.rate * self.features.reach

    @property
    def convex(self) -> ConvexLoss:  # type: ignore[override]
        """The error of a prediction is below 1, so a gradient is no longer than its row."""
        return ConvexLoss(steepest=self.features.reach, rate=self.rate, blank_loss=math.log(2.0))

    @property
    def cells(self) -> int:  # type: ignore[override]
        """The number of cells."""
        return self.features.cells

    def check(self, schema: pa.Schema | None) -> None:
        self.features = self.features.fitted(schema)

    def learn(self, model: Array, items: pa.RecordBatch, seen: int) -> Learned:
        sound = self.features.sound(items)
        if not sound.num_rows:
            return Learned(Cells(np.zeros(0, np.uint32), np.zeros(0)), StepFacts(items=0), skipped=items.num_rows)
        learner = ItemLearner(self.features, model, self.rate)
        lesson = learner.learn(sound, self.features.labels(sound), seen)
        index, after = learner.changes()
        count = sound.num_rows - lesson.bad
        facts = StepFacts(items=count, correct=lesson.correct, loss=lesson.loss)
        return Learned(difference(model, index, after), facts, items.num_rows - count, lesson.positives)

    def described(self) -> Mapping[str, Any]:
        return {**super().described(), "features": self.features.to_json(), "rate": self.rate}

    def names(self, cells: Array) -> pa.Array:
        known = self.features.names()
        places = pa.array(cells, mask=cells >= len(known))
        return pa.array(known, pa.string()).take(places)


class LinearLearner(Learner):
    """Least squares over columns of numbers, with a bias: after each step ``-rate / sqrt(t)`` times its mean gradient,
    where t is how many items the worker has had. Its gradients have no limit, so theorem 1 says nothing of its regret.
    """

    def __init__(self, numeric: tuple[str, ...], *, label: str = "label", rate: float = 1.0) -> None:
        self.numeric, self.label, self.rate = column_names("numeric", numeric), label, _checked(rate)

    @property
    def cells(self) -> int:  # type: ignore[override]
        """The number of cells."""
        return 1 + len(self.numeric)

    def check(self, schema: pa.Schema | None) -> None:
        if schema is None:
            return
        for name in (*self.numeric, self.label):
            kind = column_type(schema, name, "Name columns of numbers: numeric, label.")
            if not (pat.is_integer(kind) or pat.is_floating(kind) or pat.is_decimal(kind) or pat.is_boolean(kind)):
                raise UsageError(
                    f"Column {name!r} is {kind}, not numeric.",
                    remedy="Leave it out, or make numbers of it with map.",
                    column=name,
                )

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
        columns = [as_array(items.column(name)).to_numpy(zero_copy_only=False) for name in self.numeric]
        inputs = np.column_stack([np.ones(items.num_rows), *columns]).astype(float)
        wanted = as_array(items.column(self.label)).to_numpy(zero_copy_only=False).astype(float)
        sound = np.isfinite(wanted) & np.isfinite(inputs).all(axis=1)
        inputs, wanted = inputs[sound], wanted[sound]
        error = inputs @ model - wanted
        facts = StepFacts(items=len(wanted), loss=float(0.5 * error @ error))
        mean = inputs.T @ error / max(1, len(wanted))
        return Cells(np.arange(self.cells, dtype=np.uint32), mean), facts

    def apply(self, gradient: Cells, seen: int) -> Cells:
        downhill = super().apply(gradient, seen)
        return Cells(downhill.index, self.rate * downhill.values)

    def described(self) -> Mapping[str, Any]:
        return {**super().described(), "numeric": list(self.numeric), "label": self.label, "rate": self.rate}

    def names(self, cells: Array) -> pa.Array:
        return pa.array(["bias", *self.numeric], pa.string()).take(pa.array(cells))


def _checked(rate: float) -> float:
    """UsageError if it is no rate to learn at."""
    if not isinstance(rate, Real) or not 0 < rate < math.inf:
        raise UsageError(f"The learning rate must be a number above 0, not {rate!r}.", rate=rate)
    return rate
