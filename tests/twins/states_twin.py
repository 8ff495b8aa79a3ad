"""Plain twin of the states: numbers by key or index in dicts, copied at every transaction."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping

from afspark.model.divergence import Divergence
from tests.twins.cells_twin import distance

Number = int | float


def separation(divergence: Divergence, left: Mapping[Hashable, Number], right: Mapping[Hashable, Number]) -> float:
    """The divergence between two mappings, in which missing entries are zero; by the definition."""
    keys = left.keys() | right.keys()
    if divergence is Divergence.KEYS:
        return float(sum((left.get(key, 0) != 0) != (right.get(key, 0) != 0) for key in keys))
    differences = [distance(left.get(key, 0), right.get(key, 0)) for key in keys]
    if divergence is Divergence.MAX:
        return max(differences, default=0.0)
    return math.fsum(differences) if divergence is Divergence.MANHATTAN else math.hypot(*differences)


class PlainState:
    """Present and durable entries of a table, set, vector, matrix or number; zeros are kept as entries."""

    def __init__(self) -> None:
        self.values: dict[Hashable, Number] = {}
        self.durable: dict[Hashable, Number] = {}
        self._before: dict[Hashable, Number] = {}

    def begin(self) -> None:
        self._before = dict(self.values)

    def rollback(self) -> None:
        self.values = dict(self._before)

    def add(self, updates: Iterable[tuple[Hashable, Number]]) -> None:
        for key, amount in updates:
            self.values[key] = self.values.get(key, 0) + amount

    def put(self, updates: Iterable[tuple[Hashable, Number]]) -> None:
        self.values.update(updates)

    def remove(self, keys: Iterable[Hashable]) -> None:
        for key in keys:
            if key in self.values:
                self.values[key] = 0

    def acknowledge(self, pairs: Mapping[Hashable, Number]) -> None:
        self.durable.update(pairs)

    def divergence(self, divergence: Divergence) -> float:
        return separation(divergence, self.values, self.durable)

    @property
    def present(self) -> dict[Hashable, Number]:
        """The entries that are not zero."""
        return {key: value for key, value in self.values.items() if value != 0}

    @property
    def length(self) -> int:
        """One more than the largest index ever used."""
        return max((key for key in self.values if isinstance(key, int)), default=-1) + 1
