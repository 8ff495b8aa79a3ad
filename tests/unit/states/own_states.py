"""States as a user might write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from afspark.model.states import OwnState


class Tally(OwnState):
    """Counts small numbers; the distance is the sum of the differences."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.counts: dict[int, int] = {}

    def see(self, number: int) -> None:
        self.counts[number % self.most] = self.counts.get(number % self.most, 0) + 1

    def divergence(self, backup: pa.RecordBatch | None) -> float:
        durable = _counts(backup)
        return float(sum(abs(self.counts.get(key, 0) - durable.get(key, 0)) for key in self.counts | durable))

    def backup(self) -> pa.RecordBatch | None:
        numbers = sorted(self.counts)
        return pa.record_batch({"number": numbers, "count": [self.counts[n] for n in numbers]}) if numbers else None

    def recover(self, backup: pa.RecordBatch | None) -> None:
        self.counts = _counts(backup)


class Forgetful(Tally):
    """Loses something on recovery."""

    def recover(self, backup: pa.RecordBatch | None) -> None:
        super().recover(backup)
        self.counts.pop(0, None)


def _counts(backup: pa.RecordBatch | None) -> dict[int, int]:
    columns = {"number": [], "count": []} if backup is None else backup.to_pydict()
    return dict(zip(columns["number"], columns["count"], strict=True))


def update_tally(state: Any, random: np.random.Generator) -> None:
    for number in random.integers(0, 200, int(random.integers(0, 20))):
        state.own.see(int(number))
