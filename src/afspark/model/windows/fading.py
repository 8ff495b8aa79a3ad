"""The base tick of a worker's decaying states, kept beside their cells: it survives and rolls back with them.

Nobody has to agree on it. What one worker stores is in units of its own base; every image of a backup names the
base it was made in, and whatever is shown to others is in units of the tick they ask for.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from afspark.model.states.columns import Columns
from afspark.model.windows.decay import Decayed, needs_rebase, scale, scaled
from afspark.model.windows.specs import Window

COLUMN = "base"
"""Name of the column. Those of states have a dot."""

_STAMP = b"base"

Key = TypeVar("Key")


class _Slot(enum.IntEnum):
    """Positions in the column. Never renumber: segments outlive processes."""

    KNOWN = 0
    BASE = 1
    KNOWN_BEFORE = 2
    BASE_BEFORE = 3
    MOVED = 4


class _Moved(enum.IntFlag):
    """What the slot says: whether the units have changed, and whether an image of all cells was written since."""

    NOW = 1
    BEFORE = 2  # when the transaction began
    WRITTEN = 4


class Fading:
    """The base of all states of one worker. What is stored before any time is known counts as of the first tick.

    `begin` comes before that of the states, `rollback` with theirs.
    """

    def __init__(self, window: Window, columns: Columns) -> None:
        self.window = window
        self._slots = columns.open(COLUMN, np.dtype(np.int64), len(_Slot))

    @property
    def base(self) -> int | None:
        return int(self._slots[_Slot.BASE]) if self._slots[_Slot.KNOWN] else None

    @property
    def moved(self) -> bool:
        """Whether the units of the cells have changed since the last backup, so that the next one has all of them."""
        return bool(self._slots[_Slot.MOVED] & _Moved.NOW)

    def begin(self) -> None:
        self._slots[_Slot.BASE_BEFORE] = self._slots[_Slot.BASE]
        self._slots[_Slot.KNOWN_BEFORE] = self._slots[_Slot.KNOWN]
        waits = self.moved and not self._slots[_Slot.MOVED] & _Moved.WRITTEN
        self._slots[_Slot.MOVED] = _Moved.NOW | _Moved.BEFORE if waits else 0

    def rollback(self) -> None:
        self._slots[_Slot.BASE] = self._slots[_Slot.BASE_BEFORE]
        self._slots[_Slot.KNOWN] = self._slots[_Slot.KNOWN_BEFORE]
        waited = self._slots[_Slot.MOVED] & _Moved.BEFORE
        self._slots[_Slot.MOVED] = _Moved.NOW | _Moved.BEFORE if waited else 0

    def written(self) -> None:
        """Notes that the transaction has a backup of all cells, in the units that they have now."""
        self._slots[_Slot.MOVED] |= _Moved.WRITTEN

    def move(self, states: Iterable[Any], tick: int) -> None:
        """Makes sure that the states, in a transaction, can take items of ``tick``."""
        base = self.base
        if base is not None and not needs_rebase(self.window, tick, base):
            return
        if base is not None:
            self._slots[_Slot.MOVED] |= _Moved.NOW
            for state in states:
                _rescale(state, scale(self.window, tick, base))
        self._set(tick)

    def _set(self, tick: int) -> None:
        self._slots[_Slot.BASE] = tick
        self._slots[_Slot.KNOWN] = 1

    def at(self, states: Mapping[str, Any], tick: int | None) -> dict[str, Decayed]:
        """The states in units of a tick; None is the base."""
        return {name: Decayed(state, self.factor(tick)) for name, state in states.items()}

    def factor(self, tick: int | None) -> float:
        """What stored numbers are multiplied with to give those at a tick."""
        base = self.base
        return 1.0 if base is None or tick is None else scale(self.window, tick, base)

    def threshold(self, theta: float, tick: int | None) -> float:
        """``theta``, in units of a tick, in stored units; 0 without a tick, because nobody could say what is lost."""
        if theta in (0.0, math.inf):
            return theta
        factor = self.factor(tick)
        return 0.0 if tick is None else theta / factor if factor else math.inf

    # Backups

    def stamped(self, image: pa.RecordBatch) -> pa.RecordBatch:
        """An image that names the base it is in."""
        return image if self.base is None else image.replace_schema_metadata({_STAMP: str(self.base)})

    def restore(self, images: Mapping[Key, Iterable[pa.RecordBatch]]) -> dict[Key, list[pa.RecordBatch]]:
        """The images in units of the newest base among them, which becomes the base of the states."""
        found = {key: list(batches) for key, batches in images.items()}
        bases = [base for batches in found.values() for base in map(_base_of, batches) if base is not None]
        if not bases:
            return found
        newest = max(bases)
        self._set(newest)
        return {key: [self._converted(batch, newest) for batch in batches] for key, batches in found.items()}

    def takes(self, image: pa.RecordBatch) -> bool:
        """Whether an image can be put over the states: it is in their units, or they have none yet."""
        base = _base_of(image)
        if base is not None and self.base is None:
            self._set(base)
        return base is None or base == self.base

    def _converted(self, image: pa.RecordBatch, tick: int) -> pa.RecordBatch:
        base = _base_of(image)
        return image if base is None or base == tick else scaled(image, scale(self.window, tick, base))


def _base_of(image: pa.RecordBatch) -> int | None:
    stamp = (image.schema.metadata or {}).get(_STAMP)
    return None if stamp is None else int(stamp)


def _rescale(state: Any, factor: float) -> None:
    """Multiplies all cells."""
    cells = scaled(state.export(), factor)
    name = cells.schema.names[0]
    if name == "key":
        state.put(cells.column(name), cells.column("value"))
    elif hasattr(state, "put_at"):
        state.put_at(cells.column(name), cells.column("value"))
    elif cells.num_rows:
        state.put(cells.column("value"))
