"""Forward decay: a state that fades without being touched.

Cells are kept in units of a base tick. An item of tick p adds amount * decay ** (base - p), and the value at
tick q is what is stored times decay ** (q - base). Shadows and backups are in the same units, so the passing of
time changes no cell; only when the factors grow out of hand must the state move to a newer base.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.states import StateSpec
from afspark.model.states.columns import Array
from afspark.model.states.inputs import plain
from afspark.model.windows.specs import Decaying

SMALLEST = 1e-100
"""Below this factor a state moves to a newer base, long before stored values leave the range of float64."""


def scale(window: Decaying, tick: int, base: int) -> float:
    """What a stored cell is multiplied with to give its value at ``tick``.

    Moving a state to the base ``tick`` multiplies all cells, shadows and backups by the same number.

    >>> scale(Decaying(0.5, 1, by="processing"), tick=12, base=10)
    0.25
    """
    try:
        return min(float(window.decay ** (tick - base)), sys.float_info.max)
    except OverflowError:
        # An item from so long before the base adds nothing that a float64 could hold.
        return sys.float_info.max


def needs_rebase(window: Decaying, tick: int, base: int) -> bool:
    """Whether the state must move to the base ``tick`` before it takes items of that tick."""
    return scale(window, tick, base) < SMALLEST


def check_decayable(spec: StateSpec) -> None:
    """``UsageError`` unless a state of this kind can fade: its values must be real numbers."""
    value = getattr(spec, "value", None)
    if value != "float64":
        held = f"holds {value} values" if value else "does not hold numbers"
        raise UsageError(
            f"A {spec.kind} that {held} cannot decay.",
            remedy="Declare the state with value='float64'.",
            kind=spec.kind,
            value=value,
        )
    if spec.distance is Divergence.KEYS:
        raise UsageError(
            f"A {spec.kind} whose divergence counts keys cannot decay: a missing key stays missing.",
            remedy="Use the divergence 'max', 'manhattan' or 'euclidean'.",
            kind=spec.kind,
            divergence=spec.distance.value,
        )


class Decayed:
    """A state as an operator sees it at one tick: updates and readings are in units of that tick.

    ``factor`` is :func:`scale` of the tick. Transactions and backups stay with the state itself.

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
        if not (factor > 0 and math.isfinite(factor)):
            raise UsageError(
                f"A factor of decay is a number above 0, got {factor}.",
                remedy="Move the state to a newer base first (needs_rebase).",
                factor=factor,
            )
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
        # What is no number is left to the state to refuse.
        return amounts / self.factor if amounts.dtype.kind in "iubf" else given

    # Reading

    def get(self, *arguments: Any, **options: Any) -> Any:
        return self.state.get(*arguments, **options) * self.factor

    @property
    def values(self) -> Array:
        """The present values, a copy: it does not follow later updates."""
        return np.asarray(self.state.values) * self.factor

    @property
    def value(self) -> float:
        return float(self.state.value) * self.factor

    def contains(self, *arguments: Any, **options: Any) -> Array:
        present: Array = self.state.contains(*arguments, **options)
        return present

    def export(self) -> pa.RecordBatch:
        return self._present(self.state.export())

    def changed(self) -> pa.RecordBatch:
        return self._present(self.state.changed())

    def _present(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        place = cells.schema.get_field_index("value")
        values = cells.column(place).to_numpy(zero_copy_only=False) * self.factor
        return cells.set_column(place, cells.schema.field(place), pa.array(values))

    def drift(self) -> float:
        return self.state.drift() * self.factor

    def divergence(self) -> float:
        return self.state.divergence() * self.factor

    @property
    def size(self) -> int:
        return int(self.state.size)

    def __len__(self) -> int:
        return self.size
