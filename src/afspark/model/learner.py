"""What a user writes to have a model trained by workers together: a gradient, and what is done with it."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import OperatorMisuse, UsageError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells, ConvexLoss, StepFacts


@dataclass(frozen=True, eq=False)
class Learned:
    """What items have taught: changes of cells of the model, and what is told of them."""

    change: Cells
    facts: StepFacts
    #: items that had nothing to teach, because something was missing
    skipped: int = 0
    #: items with label 1, where there are labels
    positives: int = 0


class Learner:
    """A model of ``cells`` numbers that begins with zeros, and how it learns.

    Write `gradient` and `cells`; or `learn`, where a step is more than a gradient. Neither may change the model that it
    is given, nor depend on anything but its arguments.
    """

    #: the number of cells: a class attribute, one set in ``__init__``, or a property
    cells: int
    #: how far one item can move the model (Euclidean); None: not known
    reach: float | None = None
    #: what theorem 1 needs to know of the losses; None: it says nothing of them, and the regret has no bound
    convex: ConvexLoss | None = None

    def check(self, schema: pa.Schema | None) -> None:
        """Raises UsageError if the stream's columns do not fit."""

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
        """The mean gradient of the items' losses at ``model``, and their number and losses."""
        raise NotImplementedError

    def apply(self, gradient: Cells, seen: int) -> Cells:
        """The change of the model by a gradient after ``seen`` items: downhill, by 1/√t."""
        return Cells(gradient.index, gradient.values * (-1.0 / math.sqrt(max(1, seen))))

    def learn(self, model: Array, items: pa.RecordBatch, seen: int) -> Learned:
        """What a step of items teaches a worker that has had ``seen`` items before."""
        gradient, facts = self.gradient(model, items)
        return Learned(self.apply(gradient, seen + facts.items), facts, skipped=items.num_rows - facts.items)

    def described(self) -> Mapping[str, Any]:
        """What a checkpoint is bound to."""
        return {"learner": type(self).__name__, "cells": self.cells}

    def names(self, cells: Array) -> pa.Array:
        """What cells stand for; null where nobody knows."""
        return pa.nulls(len(cells), pa.string())


def check_learner(learner: object) -> None:
    """UsageError unless it is a learner that says how large its model is, and how it learns."""
    kind = learner if isinstance(learner, type) else type(learner)
    if not issubclass(kind, Learner):
        raise UsageError(
            f"{reprlib.repr(learner)} is no learner.",
            remedy="Make one of a class derived from Learner, such as LogisticLearner().",
        )
    if learner is kind:
        raise UsageError(f"{kind.__name__} is a class, not a learner.", remedy=f"Write {kind.__name__}(...).")
    if not hasattr(learner, "cells"):
        raise UsageError(
            f"{kind.__name__} does not say how many numbers its model has.", remedy="Write cells = 3 in the class."
        )
    if kind.gradient is Learner.gradient and kind.learn is Learner.learn:
        raise UsageError(f"{kind.__name__} does not say how it learns.", remedy="Write the method gradient, or learn.")


def difference(before: Array, index: Array, after: Array) -> Cells:
    """The change that leads from a model to one with other values in some cells."""
    return Cells(index, after - before[np.asarray(index)])


def check_learned(learned: Learned, *, cells: int, rows: int) -> None:
    """OperatorMisuse if so many rows cannot have taught this to a model of so many cells, FloatingPointError if it
    would not have numbers any more.
    """
    change, facts, skipped = (getattr(learned, name, None) for name in ("change", "facts", "skipped"))
    if not (isinstance(change, Cells) and isinstance(facts, StepFacts) and isinstance(skipped, int | np.integer)):
        raise OperatorMisuse(
            "A learner gives something else than what it has learned.",
            remedy="Give Learned(change=Cells(…), facts=StepFacts(…), skipped=…), or of `gradient` the first two.",
        )
    index: Any = change.index
    values: Any = change.values
    if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "ui":
        raise OperatorMisuse(
            "A learner numbers cells by something else than a flat array of whole numbers.",
            remedy="Give Cells(index, values), with an index such as np.arange(cells, dtype=np.uint32).",
        )
    if not isinstance(values, np.ndarray) or values.shape != index.shape:
        raise OperatorMisuse(
            f"A learner changes {len(index)} cells by an array of the shape {np.shape(values)}.",
            remedy="Give an array of numpy with as many values as there are in the index.",
        )
    if values.dtype.kind not in "iuf":
        raise OperatorMisuse(
            f"A learner changes cells by values of the type {values.dtype}.",
            remedy="Give an array of real numbers, such as float64.",
        )
    if len(index) and not 0 <= index.min() <= index.max() < cells:
        wrong = int(index.max() if index.min() >= 0 else index.min())
        raise OperatorMisuse(
            f"A learner changes cell {wrong} of a model of {cells} cells.",
            remedy="Number cells from 0 on, and have `cells` say how many there are.",
            cell=wrong,
            cells=cells,
        )
    if not 0 <= facts.items <= rows:
        raise OperatorMisuse(
            f"A learner has learned from {facts.items} of {rows} items.",
            remedy="Let StepFacts.items be the number of those that it has learned from.",
            items=facts.items,
        )
    if not 0 <= skipped <= rows - facts.items:
        raise OperatorMisuse(
            f"A learner has skipped {skipped} of {rows} items, and learned from {facts.items}.",
            remedy="Let Learned.skipped be the number of those that had nothing to teach.",
            skipped=int(skipped),
        )
    finite = np.isfinite(values)
    if not finite.all():
        wrong = int(np.argmin(finite))
        # No misuse: an item may be to blame, and is then found like any other bad one.
        raise FloatingPointError(
            f"it changes cell {index[wrong]} of the model by {values[wrong]}: leave such an item out of the step, or"
            " learn in smaller steps if the model grows without limit"
        )
