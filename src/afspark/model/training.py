"""Workers that train one model: what they give away and get back while a batch is under way."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index
from typing import Any, Protocol

import numpy as np

from afspark.errors import OperatorMisuse, UsageError
from afspark.model.consistency import Consistency
from afspark.model.kernels.plain_arrays import Array

#: Where model servers are: beside the driver, or on hosts of executors.
PLACES = DRIVER, EXECUTORS = "driver", "executors"
#: The largest model: cells are numbered with 32 bits.
MOST_CELLS = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Cells:
    """Some cells of a model, each once, and their values, or changes of them."""

    index: Array
    values: Array

    @classmethod
    def whole(cls, model: Array) -> Cells:
        """All cells of a model."""
        return cls(np.arange(len(model), dtype=np.uint32), model.copy())

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        return int(self.index.nbytes + self.values.nbytes)


@dataclass(frozen=True, kw_only=True)
class StepFacts:
    """What a worker tells of a step besides the changes: items, those predicted rightly, the sum of their losses."""

    items: int
    correct: int = 0
    loss: float = 0.0

    def __post_init__(self) -> None:
        """Numbers of numpy become plain ones: they go as JSON."""
        try:
            for name, plain in (
                ("items", index(self.items)),
                ("correct", index(self.correct)),
                ("loss", float(self.loss)),
            ):
                object.__setattr__(self, name, plain)
        except (TypeError, ValueError) as error:
            raise OperatorMisuse(
                f"A learner tells of items={self.items!r}, correct={self.correct!r}, loss={self.loss!r}.",
                remedy="Give whole numbers, and the sum of the losses as one number.",
            ) from error


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A change of the model by what was pushed: its L1 norm, and the facts of the steps behind it together.

    ``at``: when it was made, in seconds since 1970; nothing may depend on that. ``by``: worker and step of the first
    push in it, the same in every shard, where merges may come in another order.
    """

    norm: float
    facts: StepFacts
    at: float = 0.0
    by: tuple[int, int] = (0, 0)


class Exchange(Protocol):
    """A worker's way to the model while a batch is under way."""

    def pull(self) -> Cells:
        """The whole model that the batch begins with. Waits until everybody is there."""

    def push(self, cells: Cells, facts: StepFacts) -> Cells:
        """Gives away what a step has changed; what is another value in the model by now. Waits as consistency says."""

    def finish(self) -> int:
        """There are no further items; how many steps were made."""

    @property
    def differing(self) -> int:
        """Steps of which an earlier try of this worker's, that has died, had pushed something else."""


class MergedModel(Protocol):
    """The way of the global operator to what a batch has made of its model, or of its shard of it."""

    def changes(self) -> Cells:
        """The cells that are others than before the batch."""

    def merges(self) -> list[Merge]:
        """All merges of the batch, in their order. The batch is over with it."""

    def began(self) -> float:
        """When the rounds of the batch were opened, in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class ConvexLoss:
    """Losses of items that theorem 1 is about: convex, with gradients no longer than ``steepest``, and every item moves
    the model by ``rate``/√t of its own. ``blank_loss``: what any item costs a model of zeros; None: not known.
    """

    steepest: float
    rate: float = 1.0
    blank_loss: float | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the workers of an operator train the model of the operator ``model``, which has so many ``cells``.

    ``iteration`` is the number of items of a step. Every worker of ``model`` has a shard: an equal number of cells.
    """

    model: str
    cells: int
    consistency: Consistency
    iteration: int
    #: how long a worker waits for others before the batch is begun anew
    wait_seconds: float = 60.0
    #: what is known of the losses; None: nothing is promised of the regret
    convex: ConvexLoss | None = None
    #: one of `PLACES`
    servers: str = DRIVER

    def __post_init__(self) -> None:
        for name, most in (("iteration", 2**62), ("cells", MOST_CELLS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise UsageError(f"{name} must be a whole number from 1 to {most}, not {value!r}.", **{name: value})
        consistency: object = self.consistency
        if not isinstance(consistency, Consistency) or type(consistency) is Consistency:
            raise UsageError(f"{consistency!r} is no consistency.", remedy="Use BSP(), SSP(steps) or ASP().")
        if self.servers not in PLACES:
            raise UsageError(
                f"Model servers cannot be at {self.servers!r}.", remedy=f"Use {' or '.join(map(repr, PLACES))}."
            )
        seconds: object = self.wait_seconds
        if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            raise UsageError(f"wait_seconds must be above 0, not {self.wait_seconds!r}.")

    def bounds(self, shards: int) -> tuple[int, ...]:
        """The first cell of each shard, and the number of cells.

        >>> from afspark.model.consistency import BSP
        >>> Training(model="m", cells=10, consistency=BSP(), iteration=5).bounds(3)
        (0, 4, 8, 10)
        """
        width = -(-self.cells // shards)
        return tuple(min(self.cells, shard * width) for shard in range(shards + 1))

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint is bound to: neither how long a step is nor how far workers may be apart, nor where servers
        are.
        """
        return {"model": self.model, "cells": self.cells}
