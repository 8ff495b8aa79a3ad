"""Numeric: a single number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from afspark.model.divergence import Divergence
from afspark.model.states.arrays import ArrayState, pairs_schema
from afspark.model.states.cells import VALUE_TYPES
from afspark.model.states.columns import Columns
from afspark.model.states.state import StateSpec, one_of, register_state

_ONLY = np.zeros(1, np.int64)


@register_state
@dataclass(frozen=True, kw_only=True)
class Numeric(StateSpec):
    """One number ("int64" or "float64"), zero at first. Its divergence is the difference of two values; "max",
    of which it is the case of one cell, means the same.

    >>> from afspark.model.states import HeapColumns, Numeric
    >>> total = Numeric(divergence="difference").open(HeapColumns(), "total")
    >>> total.begin()
    >>> total.add(40)
    >>> total.add(2)
    >>> total.value
    42
    """

    kind: ClassVar[str] = "numeric"
    divergences: ClassVar[tuple[Divergence, ...]] = (Divergence.MAX,)
    value: str = "int64"

    def __post_init__(self) -> None:
        if self.divergence == "difference":
            object.__setattr__(self, "divergence", Divergence.MAX)
        super().__post_init__()
        one_of("value type", self.value, VALUE_TYPES)

    def open(self, columns: Columns, name: str) -> NumericState:
        return NumericState(self, columns, name)

    @property
    def pairs_schema(self) -> pa.Schema:
        return pairs_schema(self.value)


class NumericState(ArrayState):
    """One worker's share of a number: an array of one cell."""

    spec: Numeric

    def __init__(self, spec: Numeric, columns: Columns, name: str) -> None:
        super().__init__(spec, columns, name, spec.value, 1)

    @property
    def size(self) -> int:
        return 1

    @property
    def value(self) -> int | float:
        """The present value."""
        number: int | float = self._values[0].item()
        return number

    def add(self, amount: Any) -> None:
        """Adds to the number; ``StateLimit`` if it leaves int64."""
        self._update(_ONLY, amount, self._add)

    def put(self, value: Any) -> None:
        """Overwrites the number."""
        self._update(_ONLY, value, self._put)
