"""Where the arrays of a state live."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from afspark.errors import SegmentError
from afspark.model.kernels.plain_arrays import Array


class Columns(Protocol):
    """Named growable arrays that hold states; they survive the process when mapped to files.

    A state relies on three things: a store into an array is kept when the process is killed afterwards,
    ``grow`` keeps the content, and a column that was never opened, or was dropped, opens zero-filled.
    """

    def open(self, name: str, dtype: np.dtype[Any], length: int) -> Array:
        """The whole existing column, grown to ``length`` if shorter, or a new zero-filled one of at least
        that length.
        """

    def grow(self, name: str, length: int) -> Array:
        """The column with at least ``length`` elements: same content, zero tail. Views from before must not
        be used.
        """

    def drop(self, name: str) -> None:
        """Removes a column; one that does not exist is ignored. Views from before must not be used."""

    def length(self, name: str) -> int:
        """Number of elements, 0 if the column does not exist."""

    def names(self) -> list[str]:
        """The columns there are."""


class HeapColumns(Columns):
    """Columns in process memory, for tests, simulations and the driver."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def open(self, name: str, dtype: np.dtype[Any], length: int) -> Array:
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = np.zeros(length, dtype)
        if found.dtype != dtype:
            raise SegmentError(
                f"Column {name!r} holds {found.dtype}, expected {dtype}.",
                column=name,
                found=str(found.dtype),
                expected=str(dtype),
            )
        return self.grow(name, length)

    def grow(self, name: str, length: int) -> Array:
        array = self._arrays[name]
        if length > len(array):
            longer = np.zeros(length, array.dtype)
            longer[: len(array)] = array
            self._arrays[name] = array = longer
        return array

    def drop(self, name: str) -> None:
        self._arrays.pop(name, None)

    def length(self, name: str) -> int:
        return len(self._arrays[name]) if name in self._arrays else 0

    def names(self) -> list[str]:
        return sorted(self._arrays)

    def arrays(self) -> dict[str, Array]:
        """The columns by name (the arrays themselves)."""
        return dict(self._arrays)

    def copy(self) -> HeapColumns:
        """Independent copies of all columns, as another process would find them."""
        twin = HeapColumns()
        twin._arrays = {name: array.copy() for name, array in self._arrays.items()}
        return twin
