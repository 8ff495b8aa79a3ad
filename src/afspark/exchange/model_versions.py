"""A model, and what changed in it from version to version, so that an answer can be given again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from afspark.model.kernels.merging import Merger
from afspark.model.kernels.plain_arrays import Array
from afspark.model.training import Cells


@dataclass(frozen=True, eq=False)
class Version:
    """What a merge has changed: the values after it, and the L1 norm of the change."""

    cells: Cells
    norm: float


class ModelVersions:
    """A model from the beginning of a batch on. Version 0 is the one that the batch began with."""

    def __init__(self, model: Array) -> None:
        self._first = model
        self._merger = Merger(model.copy())
        self._log: list[Version] = []

    @property
    def newest(self) -> int:
        return len(self._log)

    @property
    def model(self) -> Array:
        return self._merger.model

    @property
    def nbytes(self) -> int:
        """What the log of changes holds."""
        return sum(version.cells.nbytes for version in self._log)

    @property
    def norms(self) -> list[float]:
        return [version.norm for version in self._log]

    def merge(self, parts: Sequence[tuple[Cells, float]]) -> int:
        """Adds changes with their weights, in this order; the number of the version that results."""
        self._merger.begin()
        for cells, weight in parts:
            self._merger.add(cells.index, cells.values, weight)
        index, values, norm = self._merger.end()
        self._log.append(Version(Cells(index, values), norm))
        return self.newest

    def changes(self, since: int | None, upto: int) -> Cells:
        """What differs between two versions, with the values of the later one; ``since`` None: the whole model."""
        if since is None:
            model = self._first.copy()
            for version in self._log[:upto]:
                model[version.cells.index] = version.cells.values
            return Cells.whole(model)
        parts = [version.cells for version in self._log[since:upto]]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Cells(np.zeros(0, np.uint32), np.zeros(0))
        # The last value of a cell counts.
        index = np.concatenate([part.index for part in reversed(parts)])
        values = np.concatenate([part.values for part in reversed(parts)])
        return Cells(*self._merger.first_of(index, values))
