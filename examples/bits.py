"""A state of one's own, used by own_state.py.

It is in a module of its own because workers must be able to import the class.
"""

import numpy as np
import pyarrow as pa

import afspark as af


class Bits(af.OwnState):
    """m bits. All that lasts is in what ``backup`` returns."""

    def __init__(self, size: int) -> None:
        self.bits = np.zeros(size, bool)

    def set(self, places: np.ndarray) -> None:
        self.bits[places] = True

    def divergence(self, backup: pa.RecordBatch | None) -> float:
        return float(np.count_nonzero(self.bits != unpacked(backup, len(self.bits))))

    def backup(self) -> pa.RecordBatch | None:
        return pa.record_batch({"bits": [np.packbits(self.bits).tobytes()]}) if self.bits.any() else None

    def recover(self, backup: pa.RecordBatch | None) -> None:
        self.bits = unpacked(backup, len(self.bits))


def unpacked(backup: pa.RecordBatch | None, size: int) -> np.ndarray:
    if backup is None:
        return np.zeros(size, bool)
    return np.unpackbits(np.frombuffer(backup.column("bits")[0].as_py(), np.uint8), count=size).astype(bool)
