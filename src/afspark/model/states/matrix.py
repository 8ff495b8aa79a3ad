"""Matrix: a dense two-dimensional array of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels import cells as cell_kernel
from afspark.model.kernels import matrix as kernel
from afspark.model.states.base import StateSpec, one_of, register_state
from afspark.model.states.cells import BLOCK, VALUE_TYPES, CellState
from afspark.model.states.columns import Array, Columns
from afspark.model.states.inputs import as_cells, as_values, converted, plain
from afspark.model.states.scalars import Slot

MOST_CELLS = 2**32 - 1


@register_state
@dataclass(frozen=True, kw_only=True)
class Matrix(StateSpec):
    """``rows`` x ``cols`` numbers ("int64" or "float64"), zero at first; at most 2^32 - 1 cells.

    Sums outside int64 raise ``StateLimit``. A vector is a matrix of one row.

    >>> from afspark.model.states import HeapColumns, Matrix
    >>> sketch = Matrix(rows=2, cols=3, divergence="manhattan").open(HeapColumns(), "sketch")
    >>> sketch.begin()
    >>> sketch.add_at([0, 5, 5], 1)
    >>> sketch.values.tolist()
    [[1, 0, 0], [0, 0, 2]]
    >>> sketch.issue(theta=2).to_pylist()
    [{'index': 5, 'value': 2}]
    """

    kind: ClassVar[str] = "matrix"
    rows: int
    cols: int
    value: str = "int64"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("value type", self.value, VALUE_TYPES)
        sides: tuple[tuple[str, object], ...] = (("rows", self.rows), ("cols", self.cols))
        for what, number in sides:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise UsageError(f"{what} is a whole number of at least 1, got {number!r}.", got=number)
        if self.rows * self.cols > MOST_CELLS:
            raise UsageError(
                f"A matrix of {self.rows} x {self.cols} has more than {MOST_CELLS} cells.",
                remedy="Partition it over more workers.",
                limit=MOST_CELLS,
            )

    def open(self, columns: Columns, name: str) -> MatrixState:
        return MatrixState(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pa.schema([("index", pa.int64()), ("value", pa.type_for_alias(self.value))])


class MatrixState(CellState):
    """One worker's share of a matrix. Cell number = row * cols + column."""

    spec: Matrix

    def __init__(self, spec: Matrix, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name, spec.value, spec.rows * spec.cols)

    @property
    def size(self) -> int:
        return self.spec.rows * self.spec.cols

    @property
    def values(self) -> Array:
        """The present values as a read-only view of shape (rows, cols); it follows later updates."""
        view = self._values[: self.size].reshape(self.spec.rows, self.spec.cols)
        view.flags.writeable = False
        return view

    # Updates

    def add_dense(self, delta: Any) -> None:
        """Adds a matrix of the same shape (or its flat form); the cells where it is not zero count as
        touched.
        """
        self._require_open()
        given = plain("A delta", delta)
        if given.shape not in ((self.spec.rows, self.spec.cols), (self.size,)):
            raise UsageError(
                f"A delta has shape ({self.spec.rows}, {self.spec.cols}), got {given.shape}.",
                got=given.shape,
            )
        deltas = converted("A delta", given, VALUE_TYPES[self.spec.value]).reshape(-1)
        add = kernel.add_span_integers if self._integers else kernel.add_span_floats
        attempt = self._scalars[Slot.ATTEMPT]
        for start in range(0, self.size, BLOCK):
            span = deltas[start : start + BLOCK]
            count = self._journal_room(len(span))
            count = kernel.journal_span(
                span, start, self._values, self._stamps, attempt, self._journal, self._olds, count
            )
            self._scalars[Slot.JOURNAL] = count
            if add(span, start, self._values):
                self._overflow()

    def add_at(self, index: Any, values: Any) -> None:
        """Adds ``values`` (one per cell, or one for all) at flat cell numbers, which may repeat."""
        self._update(index, values, self._add)

    def put_at(self, index: Any, values: Any) -> None:
        """Overwrites cells; of several values for one cell the last wins."""
        self._update(index, values, self._put)

    def _update(self, index: Any, values: Any, apply: Any) -> None:
        self._require_open()
        cells = as_cells(index)
        if not cell_kernel.all_within(cells, self.size):
            raise UsageError(
                f"Cell indices must be in 0..{self.size - 1}, got {cells.min()}..{cells.max()}.",
                size=self.size,
            )
        amounts, step = as_values(values, VALUE_TYPES[self.spec.value], len(cells))
        for start in range(0, len(cells), BLOCK):
            block = cells[start : start + BLOCK]
            self._touch(block)
            apply(block, amounts[start : start + BLOCK] if step else amounts, step)

    def _is_fresh(self) -> bool:
        return not self._values.any()

    def _load(self, image: pa.RecordBatch) -> None:
        cells = as_cells(image.column("index"))
        if not cell_kernel.all_within(cells, self.size):
            raise UsageError(f"A backup of state {self.name!r} has cells outside the matrix.", state=self.name)
        self._put(cells, image.column("value").to_numpy(zero_copy_only=False), 1)

    # Reading

    def export(self) -> pa.RecordBatch:
        values = self._values[: self.size]
        cells = np.flatnonzero(values)
        return self._pairs(cells, values[cells])

    def _pairs(self, cells: Array | None, values: Array) -> pa.RecordBatch:
        index = np.arange(self.size) if cells is None else cells.astype(np.int64)
        return pa.record_batch([pa.array(index), pa.array(values)], schema=self.spec.pairs_schema)
