"""A model, and what changed in it from version to version, so that an answer can be given again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from afspark.exchange.change_log import LOG_BYTES, ChangeLog
from afspark.model.kernels.merging import Merger
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells


class ModelVersions:
    """A model from the beginning of a batch on. Version 0 is the one that the batch began with.

    If it ``forgets``, what is asked for must be the newest one.
    """

    def __init__(self, model: Array, *, forgets: bool = False, log_bytes: int = LOG_BYTES) -> None:
        self._first = model
        self._merger = Merger(model.copy())
        self._log = ChangeLog(forgets=forgets, most_bytes=log_bytes)
        #: the L1 norm of the change that led to each version after the first
        self.norms: list[float] = []

    @property
    def newest(self) -> int:
        return len(self.norms)

    @property
    def model(self) -> Array:
        return self._merger.model

    @property
    def nbytes(self) -> int:
        """What the log of changes holds in memory."""
        return self._log.nbytes

    def merge(self, parts: Sequence[tuple[Cells, float]]) -> int:
        """Adds changes with their weights, in this order; the number of the version that results."""
        self._merger.begin()
        for cells, weight in parts:
            self._merger.add(cells.index, cells.values, weight)
        index, values, norm = self._merger.end()
        self._log.append(Cells(index, values))
        self.norms.append(norm)
        return self.newest

    def changed(self) -> Cells:
        """The cells that are others than in version 0, with their values in the newest one."""
        index = np.flatnonzero(self._first.view(np.int64) != self.model.view(np.int64)).astype(np.uint32)
        return Cells(index, self.model[index])

    def changes(self, since: int | None, upto: int) -> Cells:
        """What differs between two versions, with the values of the later one; ``since`` None: the whole model.

        All of the newest model where that is shorter, or where what was changed since is not in memory any more.
        """
        if since is None:
            return Cells.whole(self.model if upto == self.newest else self._at(upto))
        if upto == self.newest and (
            since < self._log.first or (upto - since > 1 and self._log.cells(since, upto) >= len(self.model))
        ):
            return Cells.whole(self.model)
        parts = self._log.between(since, upto)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Cells(np.zeros(0, np.uint32), np.zeros(0))
        # The last value of a cell counts.
        index = np.concatenate([part.index for part in reversed(parts)])
        values = np.concatenate([part.values for part in reversed(parts)])
        return Cells(*self._merger.first_of(index, values))

    def _at(self, version: int) -> Array:
        model = self._first.copy()
        for cells in self._log.between(0, version):
            model[cells.index] = cells.values
        return model
