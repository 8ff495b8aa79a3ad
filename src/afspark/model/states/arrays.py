"""The part that numbers by position share: single numbers, vectors and matrices. Cell number = flat index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels import cell_kernels as cell_kernel
from afspark.model.kernels import matrix_kernels as kernel
from afspark.model.kernels.plain_arrays import Array, as_cells, as_values
from afspark.model.states.cells import BLOCK, CellState
from afspark.model.states.scalars import Slot

MOST_CELLS = 2**32 - 1


def pairs_schema(value: str) -> pa.Schema:
    """Backups of arrays: flat cell numbers and values."""
    return pa.schema([("index", pa.int64()), ("value", pa.type_for_alias(value))])


def whole_number(what: str, number: object, least: int) -> None:
    """``UsageError`` unless ``number`` is an integer of at least ``least``."""
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise UsageError(f"{what} is a whole number of at least {least}, got {number!r}.", got=number)


class ArrayState(CellState):
    """One worker's share of an array of numbers."""

    def _reach(self, cells: Array) -> None:
        """Makes sure that these cells exist; ``UsageError`` if they cannot."""
        if not cell_kernel.all_within(cells, self.size):
            raise UsageError(
                f"Cell indices of state {self.name!r} must be in 0..{self.size - 1}, got {cells.min()}..{cells.max()}.",
                state=self.name,
                size=self.size,
            )

    # Updates

    def _update(self, index: Any, values: Any, apply: Any) -> None:
        self._require_open()
        cells = as_cells(index)
        amounts, step = as_values(values, self._type, len(cells))
        self._reach(cells)
        for start in range(0, len(cells), BLOCK):
            block = cells[start : start + BLOCK]
            self._touch(block)
            apply(block, amounts[start : start + BLOCK] if step else amounts, step)

    def _add_span(self, deltas: Array) -> None:
        """Adds to the first ``len(deltas)`` cells; those with a delta of zero are not touched."""
        add = kernel.add_span_integers if self._integers else kernel.add_span_floats
        attempt = self._scalars[Slot.ATTEMPT]
        for start in range(0, len(deltas), BLOCK):
            span = deltas[start : start + BLOCK]
            count = self._journal_room(len(span))
            count = kernel.journal_span(
                span, start, self._values, self._stamps, attempt, self._journal, self._olds, count
            )
            self._scalars[Slot.JOURNAL] = count
            if add(span, start, self._values):
                self._overflow()

    def merge_from(self, cells: pa.RecordBatch) -> None:
        self._require_schema(cells)
        self._update(cells.column("index"), cells.column("value"), self._add)

    def overwrite(self, pairs: pa.RecordBatch) -> None:
        self._require_schema(pairs)
        self._update(pairs.column("index"), pairs.column("value"), self._put)

    # Backups

    def _is_fresh(self) -> bool:
        return not self._values.any()

    def _load(self, image: pa.RecordBatch) -> None:
        cells = as_cells(image.column("index"))
        self._reach(cells)
        self._put(cells, image.column("value").to_numpy(zero_copy_only=False), 1)

    # Reading

    def _view(self) -> Array:
        view = self._values[: self.size]
        view.flags.writeable = False
        return view

    def export(self) -> pa.RecordBatch:
        cells = np.flatnonzero(self._values[: self.size])
        return self._pairs(cells, self._values[cells])

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        index = np.arange(self.size) if cells is None else cells.astype(np.int64)
        return pa.record_batch([pa.array(index), pa.array(values)], schema=self.spec.pairs_schema)
