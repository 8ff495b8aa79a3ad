"""The smallest state that can be rolled back: an array with a hand-made undo journal in mapped columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from afspark.model.states.columns import Columns

INT = np.dtype(np.int64)


class JournalledArray:
    """Each first change of a cell in a transaction is journalled and published before the cell changes."""

    def __init__(self, columns: Columns, size: int) -> None:
        self.values: npt.NDArray[np.int64] = columns.open("values", INT, size)[:size]
        self._stamps = columns.open("stamps", INT, size)
        self._ids = columns.open("journal.ids", INT, size)
        self._old = columns.open("journal.old", INT, size)
        self._meta = columns.open("meta", INT, 2)  # attempt, journal count

    def begin(self) -> None:
        self._meta[1] = 0
        self._meta[0] += 1

    def add(self, ids: npt.NDArray[np.int64], amount: int) -> None:
        """Adds ``amount`` once to each of the different ``ids``."""
        for _ in self.add_stepwise(ids, amount):
            pass

    def add_stepwise(self, ids: npt.NDArray[np.int64], amount: int) -> Iterator[None]:
        """`add`, stopping wherever a process may be killed."""
        attempt, count = int(self._meta[0]), int(self._meta[1])
        first = ids[self._stamps[ids] != attempt]
        self._ids[count : count + len(first)] = first
        self._old[count : count + len(first)] = self.values[first]
        yield
        self._meta[1] = count + len(first)
        yield
        self._stamps[first] = attempt
        half = len(ids) // 2
        self.values[ids[:half]] += amount
        yield
        self.values[ids[half:]] += amount

    def rollback(self) -> None:
        count = int(self._meta[1])
        self.values[self._ids[:count]] = self._old[:count]
        # A stamp must not claim that a cell is in the journal when a repeated attempt fills it anew.
        self._meta[0] += 1
