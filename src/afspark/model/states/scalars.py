"""The scalars of a state, kept in one small column so that they survive the process with the arrays.

Every assignment is one eight-byte store. Floats share the column by bit pattern.
"""

from __future__ import annotations

import enum

import numpy as np

from afspark.errors import CheckpointError
from afspark.model.kernels.plain_arrays import Array
from afspark.model.states.columns import Columns

FORMAT = 1
_SLOTS = 32


class Slot(enum.IntEnum):
    """Positions in the column. Never renumber: segments outlive processes."""

    FORMAT = 0
    PHASE = 1
    ATTEMPT = 2
    JOURNAL = 3
    PENDING = 4
    ENTRIES = 5
    ENTRIES_BEFORE = 6
    INDEX_BITS = 7
    POWER = 8
    POWER_BEFORE = 9
    POWER_AFTER = 10
    ERROR = 11
    ERROR_BEFORE = 12
    ERROR_AFTER = 13
    LIVING = 14
    LIVING_BEFORE = 15
    LIVING_AFTER = 16
    GENERATION = 17
    GENERATION_AFTER = 18
    ENTRIES_AFTER = 19
    INDEX_BITS_AFTER = 20
    REBUILDING = 21
    DURABLE = 22
    DURABLE_AFTER = 23
    CURRENT = 24
    BEFORE = 25
    SECRET = 26
    #: number of the null key's entry plus one, 0 if there is none
    NULL_ENTRY = 27
    NULL_ENTRY_AFTER = 28


class TransactionPhase(enum.IntEnum):
    """Where a transaction stands.

    CLOSED: nothing to undo. OPEN: updates are journalled. ISSUED: pairs are pending, updates are refused.
    ACKNOWLEDGING: shadows are being moved. REBUILT: a new generation of columns is complete and takes over.
    DISCARDING: all columns are being dropped. Whoever finds one of these three finishes it.
    """

    CLOSED = 0
    OPEN = 1
    ISSUED = 2
    ACKNOWLEDGING = 3
    REBUILT = 4
    DISCARDING = 5


class Scalars:
    """Integers and floats of one state, by ``Slot``."""

    def __init__(self, columns: Columns, name: str) -> None:
        self.integers: Array = columns.open(f"{name}.meta", np.dtype(np.int64), _SLOTS)
        self.floats: Array = self.integers.view(np.float64)
        found = int(self.integers[Slot.FORMAT])
        if found not in (0, FORMAT):
            raise CheckpointError(
                f"State {name!r} has format {found}, this version reads {FORMAT}.",
                state=name,
                found=found,
                expected=FORMAT,
            )
        self.integers[Slot.FORMAT] = FORMAT

    def __getitem__(self, slot: Slot) -> int:
        return int(self.integers[slot])

    def __setitem__(self, slot: Slot, value: int) -> None:
        self.integers[slot] = value

    def real(self, slot: Slot) -> float:
        return float(self.floats[slot])

    def set_real(self, slot: Slot, value: float) -> None:
        self.floats[slot] = value

    @property
    def memory(self) -> int:
        return self.integers.nbytes
