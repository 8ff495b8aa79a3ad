"""Stands in for a worker's way to the model while somebody looks for items that its learner cannot take.

What a learner has pushed cannot be undone, and is taken for that step whatever is pushed again. So parts of a batch are
tried without the servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np

from afspark.exchange.model_client import ModelExchange
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells, StepFacts


class Rehearsal:
    """Begins with the model that the batch begins with, as often as somebody pulls, and learns alone; nothing of it
    lasts. ``connect`` makes the exchange that gives the model.
    """

    #: nothing that it pushes was pushed before
    differing = 0

    def __init__(self, connect: Callable[[], ModelExchange], size: int) -> None:
        self._connect, self._size = connect, size
        self._first: Array | None = None
        self._model = np.zeros(0)
        self._steps = 0

    def pull(self) -> Cells:
        if self._first is None:
            with contextlib.closing(self._connect()) as exchange:
                cells = exchange.pull()
            self._first = np.zeros(self._size)
            self._first[cells.index] = cells.values
        self._model, self._steps = self._first.copy(), 0
        return Cells.whole(self._model)

    def push(self, cells: Cells, facts: StepFacts) -> Cells:
        np.add.at(self._model, cells.index, cells.values)
        self._steps += 1
        return Cells(cells.index, self._model[cells.index])

    def finish(self) -> int:
        return self._steps
