"""Forward decay: a state that fades without being touched.

Cells are kept in units of a base tick. An item of tick p adds amount * decay ** (base - p), and the value at
tick q is what is stored times decay ** (q - base). Shadows and backups are in the same units, so the passing of
time changes no cell; only when the factors grow out of hand must the state move to a newer base (`Fading`).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.errors import UsageError
from afspark.model.kernels.plain_arrays import Array, plain
from afspark.model.states import StateSpec
from afspark.model.windows.specs import Window, check_decayable

SMALLEST = 1e-100
"""Below this factor a state moves to a newer base, long before stored values leave the range of float64."""

LARGEST = sys.float_info.max


def scale(window: Window, tick: int, base: int) -> float:
    """What a stored cell is multiplied with to give its value at ``tick``: from 0 to infinity, both included.

    Moving a state to the base ``tick`` multiplies all cells by the same number.

    >>> from afspark.model.windows import Decaying
    >>> scale(Decaying(0.5, 1, by="processing"), tick=12, base=10)
    0.25
    """
    try:
        return float(window.kept_per_tick ** (tick - base))
    except OverflowError:
        # An item from so long before the base adds nothing that a float64 could hold.
        return math.inf


def needs_rebase(window: Window, tick: int, base: int) -> bool:
    """Whether the state must move to the base ``tick`` before it takes items of that tick."""
    return scale(window, tick, base) < SMALLEST


def scaled(cells: pa.RecordBatch, factor: float) -> pa.RecordBatch:
    """Exported cells or a backup with all values multiplied by ``factor``, within the range of normal float64."""
    place = cells.schema.get_field_index("value")
    values = _times(cells.column(place).to_numpy(zero_copy_only=False), factor)
    return cells.set_column(place, cells.schema.field(place), pa.array(values))


def _times(values: Array, factor: float) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        product = np.clip(values * min(factor, LARGEST), -LARGEST, LARGEST)
    product[np.abs(product) < sys.float_info.min] = 0.0
    return product


class Decayed:
    """A state as an operator sees it at one tick: updates and readings are in units of that tick.

    ``factor`` is :func:`scale` of the tick. Transactions and backups stay with the state itself. At a tick long
    before the base (an infinite factor) updates add nothing, and what is read is as large as a float64 can be.

    >>> from afspark.model.states import HashTable, HeapColumns
    >>> table = HashTable(value="float64").open(HeapColumns(), "fading")
    >>> table.begin()
    >>> Decayed(table, 1.0).add(["a"], 8)
    >>> Decayed(table, 0.5).add(["a"], 1)
    >>> Decayed(table, 0.5).get(["a"]).tolist()
    [5.0]
    """

    def __init__(self, state: Any, factor: float) -> None:
        check_decayable(state.spec)
        if not factor >= 0:
            raise UsageError(f"A factor of decay is a number of at least 0, got {factor}.", factor=factor)
        self.state = state
        self.factor = factor

    @property
    def spec(self) -> StateSpec:
        return self.state.spec

    # Updates: hash tables and matrices name cells first; a single number needs no name.

    def add(self, *arguments: Any, **options: Any) -> None:
        self._update(self.state.add, arguments, options)

    def put(self, *arguments: Any, **options: Any) -> None:
        self._update(self.state.put, arguments, options)

    def add_at(self, index: Any, values: Any) -> None:
        self.state.add_at(index, self._stored(values))

    def put_at(self, index: Any, values: Any) -> None:
        self.state.put_at(index, self._stored(values))

    def add_dense(self, delta: Any) -> None:
        self.state.add_dense(self._stored(delta))

    def _update(self, update: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        given = list(arguments)
        place = 0 if len(given) == 1 and not options else 1
        if "values" in options:
            options = options | {"values": self._stored(options["values"])}
        elif place < len(given):
            given[place] = self._stored(given[place])
        update(*given, **options)

    def _stored(self, given: Any) -> Any:
        amounts = plain("Values", given)
        if self.factor == 0:
            raise UsageError(
                "A state takes no items of a tick at which it has faded to nothing.",
                remedy="Move it to a newer base first (Fading.move).",
            )
        # What is no number is left to the state to refuse.
        return amounts / self.factor if amounts.dtype.kind in "iubf" else given

    # Reading

    def get(self, *arguments: Any, **options: Any) -> Any:
        return _times(np.asarray(self.state.get(*arguments, **options)), self.factor)

    @property
    def values(self) -> Array:
        """The present values, a copy: it does not follow later updates."""
        return _times(np.asarray(self.state.values), self.factor)

    @property
    def value(self) -> float:
        return self._shown(self.state.value)

    def contains(self, *arguments: Any, **options: Any) -> Array:
        present: Array = self.state.contains(*arguments, **options)
        return present

    def export(self) -> pa.RecordBatch:
        cells = scaled(self.state.export(), self.factor)
        return cells.filter(pc.not_equal(cells.column("value"), 0.0))

    def changed(self) -> pa.RecordBatch:
        return scaled(self.state.changed(), self.factor)

    def drift(self) -> float:
        return self._shown(self.state.drift())

    def drift_left(self) -> float:
        return self._shown(self.state.drift_left())

    def divergence(self) -> float:
        return self._shown(self.state.divergence())

    def _shown(self, number: float) -> float:
        return float(_times(np.array([number], np.float64), self.factor)[0])

    @property
    def size(self) -> int:
        return int(self.state.size)

    def __len__(self) -> int:
        return self.size
