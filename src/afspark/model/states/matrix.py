"""Matrix: a dense two-dimensional array of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array, converted, plain
from afspark.model.states.arrays import MOST_CELLS, ArrayState, pairs_schema, whole_number
from afspark.model.states.cells import VALUE_TYPES
from afspark.model.states.columns import Columns
from afspark.model.states.state import StateSpec, one_of, register_state


@register_state
@dataclass(frozen=True, kw_only=True)
class Matrix(StateSpec):
    """``rows`` x ``cols`` numbers ("int64" or "float64"), zero at first; at most 2^32 - 1 cells.

    Sums outside int64 raise ``StateLimit``.

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
        whole_number("rows", self.rows, 1)
        whole_number("cols", self.cols, 1)
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
        return pairs_schema(self.value)


class MatrixState(ArrayState):
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
        return self._view().reshape(self.spec.rows, self.spec.cols)

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
        self._add_span(converted("A delta", given, self._type).reshape(-1))

    def add_at(self, index: Any, values: Any) -> None:
        """Adds ``values`` (one per cell, or one for all) at flat cell numbers, which may repeat."""
        self._update(index, values, self._add)

    def put_at(self, index: Any, values: Any) -> None:
        """Overwrites cells; of several values for one cell the last wins."""
        self._update(index, values, self._put)
