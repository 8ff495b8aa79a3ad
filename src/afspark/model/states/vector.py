"""Vector: numbers by position, as many as are needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.kernels import cell_kernels as cell_kernel
from afspark.model.kernels.plain_arrays import Array, converted, plain
from afspark.model.states import books
from afspark.model.states.arrays import MOST_CELLS, ArrayState, pairs_schema, whole_number
from afspark.model.states.books import Balance
from afspark.model.states.cells import VALUE_TYPES
from afspark.model.states.columns import Columns
from afspark.model.states.scalars import Slot
from afspark.model.states.state import StateLimit, StateSpec, one_of, register_state


@register_state
@dataclass(frozen=True, kw_only=True)
class Vector(StateSpec):
    """``size`` numbers ("int64" or "float64"), zero at first; an update of a later position lengthens it.

    Sums outside int64, and more than 2^32 - 1 cells, raise ``StateLimit``. A vector that has grown carries its
    last cell in every backup that needs it, zero or not: it tells the length. A backup of which the divergence
    is within the threshold is not made, so after a failure the vector may be shorter by cells that were within
    it.

    >>> from afspark.model.states import HeapColumns, Vector
    >>> model = Vector(size=2, value="float64", divergence="euclidean").open(HeapColumns(), "model")
    >>> model.begin()
    >>> model.add_at([0, 3], [0.5, 2.0])
    >>> model.values.tolist()
    [0.5, 0.0, 0.0, 2.0]
    >>> model.issue(theta=1).to_pylist()
    [{'index': 3, 'value': 2.0}]
    """

    kind: ClassVar[str] = "vector"
    size: int = 0
    value: str = "int64"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("value type", self.value, VALUE_TYPES)
        whole_number("size", self.size, 0)
        if self.size > MOST_CELLS:
            raise UsageError(f"A vector has at most {MOST_CELLS} cells, got {self.size}.", limit=MOST_CELLS)

    def open(self, columns: Columns, name: str) -> VectorState:
        return VectorState(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pairs_schema(self.value)


class VectorState(ArrayState):
    """One worker's share of a vector. Cells beyond its length are zero, whatever was rolled back."""

    spec: Vector

    def __init__(self, spec: Vector, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name, spec.value, spec.size)

    @property
    def size(self) -> int:
        return max(self.spec.size, self._scalars[Slot.ENTRIES])

    def __len__(self) -> int:
        return self.size

    @property
    def values(self) -> Array:
        """The present values as a read-only view; ask again after the vector has grown."""
        return self._view()

    # Updates

    def add_dense(self, delta: Any) -> None:
        """Adds a vector to the first ``len(delta)`` cells; those where it is not zero count as touched."""
        self._require_open()
        given = plain("A delta", delta)
        if given.ndim != 1:
            raise UsageError(f"A delta is a one-dimensional array, got shape {given.shape}.", got=given.shape)
        deltas = converted("A delta", given, self._type)
        self._lengthen(len(deltas))
        self._add_span(deltas)

    def add_at(self, index: Any, values: Any) -> None:
        """Adds ``values`` (one per cell, or one for all) at positions, which may repeat."""
        self._update(index, values, self._add)

    def put_at(self, index: Any, values: Any) -> None:
        """Overwrites cells; of several values for one cell the last wins."""
        self._update(index, values, self._put)

    def _reach(self, cells: Array) -> None:
        if not cell_kernel.all_within(cells, self.size):
            if cells.min() < 0:
                raise UsageError(f"Positions are at least 0, got {cells.min()}.", state=self.name, got=int(cells.min()))
            self._lengthen(int(cells.max()) + 1)

    def _lengthen(self, length: int) -> None:
        if length > MOST_CELLS:
            raise StateLimit(
                f"Vector {self.name!r} would have {length} cells.",
                remedy="Use a hash table for sparse positions, or more workers.",
                state=self.name,
                limit=MOST_CELLS,
            )
        if length > self.size:
            self._room_for_cells(length)
            self._scalars[Slot.ENTRIES] = length

    # The length follows the transaction

    def _extent_begin(self) -> None:
        self._scalars[Slot.ENTRIES_BEFORE] = self._scalars[Slot.ENTRIES]

    def _extent_rollback(self) -> None:
        self._scalars[Slot.ENTRIES] = self._scalars[Slot.ENTRIES_BEFORE]

    def _complete(self, cells: Array, left: Balance, theta: float) -> tuple[Array, Balance]:
        told = self.size <= max(self.spec.size, self._scalars[Slot.DURABLE])
        if told or (len(cells) == 0 and theta > 0) or (cells == self.size - 1).any():
            return cells, left
        last = np.array([self.size - 1], np.uint32)
        if self._measure.adds_up:
            weight = float(self._weighed(self._measure.weigh, last)[0])
            left = books.untouched(left, weight, 1, integers=self._whole)
        return np.append(cells, last), left

    def _extent_issue(self, cells: Array) -> None:
        # A backup of a vector that has grown always has its last cell.
        self._scalars[Slot.DURABLE_AFTER] = self.size

    def _extent_acknowledge(self) -> None:
        self._scalars[Slot.DURABLE] = self._scalars[Slot.DURABLE_AFTER]

    def _extent_restore(self) -> None:
        self._scalars[Slot.DURABLE] = self.size

    def _is_fresh(self) -> bool:
        return super()._is_fresh() and self._scalars[Slot.ENTRIES] == 0

    def dump(self) -> pa.RecordBatch:
        pending = self._scalars[Slot.PENDING]
        return self._with_last(super().dump(), self._scalars[Slot.DURABLE_AFTER if pending else Slot.DURABLE])

    def export(self) -> pa.RecordBatch:
        return self._with_last(super().export(), self.size)

    def _with_last(self, pairs: pa.RecordBatch, length: int) -> pa.RecordBatch:
        """The pairs with the last cell of a vector of that length, which they lack if it is zero."""
        if length <= self.spec.size or (pairs.num_rows and pairs.column("index")[-1].as_py() == length - 1):
            return pairs
        last = self._pairs(np.array([length - 1]), np.zeros(1, self._type))
        return pa.concat_batches([pairs, last])
