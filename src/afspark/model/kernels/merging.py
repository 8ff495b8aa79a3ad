"""Merging changes into a model, and what came of it."""

from __future__ import annotations

import numpy as np
from numba import njit

from afspark.model.kernels.plain_arrays import Array


@njit(cache=True, nogil=True)
def _add(model, cells, values, weight, before, marks, epoch, touched, count):  # type: ignore[no-untyped-def]
    """Adds weight · value to cells; what a cell had when it was first touched in this epoch is noted in ``before``."""
    for i in range(len(cells)):
        j = cells[i]
        if marks[j] != epoch:
            marks[j] = epoch
            before[j] = model[j]
            touched[count] = j
            count += 1
        model[j] += weight * values[i]
    return count


@njit(cache=True, nogil=True)
def _changed(model, before, touched, count, out):  # type: ignore[no-untyped-def]
    """(new values of the touched cells in ``out``, sum of the sizes of their changes)."""
    norm = 0.0
    for i in range(count):
        j = touched[i]
        out[i] = model[j]
        norm += abs(model[j] - before[j])
    return norm


@njit(cache=True, nogil=True)
def _first(cells, values, marks, epoch, kept, out):  # type: ignore[no-untyped-def]
    """How many different cells there are; they are in ``kept``, with their first values in ``out``."""
    count = 0
    for i in range(len(cells)):
        j = cells[i]
        if marks[j] != epoch:
            marks[j] = epoch
            kept[count] = j
            out[count] = values[i]
            count += 1
    return count


class Merger:
    """Merges changes into ``model``, in place. Takes memory for three models; merging costs what it touches."""

    def __init__(self, model: Array) -> None:
        self.model = model
        self._before = np.empty_like(model)
        self._marks = np.zeros(len(model), np.int64)
        self._touched = np.empty(len(model), np.uint32)
        self._epoch = self._count = 0

    def begin(self) -> None:
        self._epoch += 1
        self._count = 0

    def add(self, cells: Array, values: Array, weight: float) -> None:
        """Adds ``weight`` times the values; ``cells`` must be within the model, and each be there once."""
        self._count = _add(
            self.model, cells, values, weight, self._before, self._marks, self._epoch, self._touched, self._count
        )

    def end(self) -> tuple[Array, Array, float]:
        """The cells that were touched since `begin`, their values now, and the L1 norm of the change."""
        cells = self._touched[: self._count].copy()
        values = np.empty(self._count)
        norm = _changed(self.model, self._before, self._touched, self._count, values)
        return cells, values, float(norm)

    def first_of(self, cells: Array, values: Array) -> tuple[Array, Array]:
        """Every cell once, with the first of its values, in the order in which they come. Not while merging."""
        self._epoch += 1
        kept, out = np.empty_like(cells), np.empty_like(values)
        count = _first(cells, values, self._marks, self._epoch, kept, out)
        return kept[:count], out[:count]
