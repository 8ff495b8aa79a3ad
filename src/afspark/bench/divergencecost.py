"""What it costs to keep the divergence of a state up to date, next to the updates themselves. No Spark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from afspark.model.states import HashTable, HeapColumns, Matrix, Numeric, Set, StateSpec, Vector

ITEMS = 1_000_000
CELLS = 1_000_000
ROUNDS = 7

Update = Callable[[Any], int]
Case = tuple[str, StateSpec, Update]


def upkeep() -> list[dict[str, Any]]:
    """For every primitive and divergence: updates a second, and the share of the divergence in their time."""
    return [_measure(name, spec, update) for name, spec, update in cases()]


def cases() -> Iterator[Case]:
    draw = np.random.default_rng(0)
    few, many = draw.integers(0, 10_000, ITEMS), draw.integers(0, CELLS, ITEMS)
    ones = np.ones(ITEMS, np.int64)
    dense = draw.integers(1, 5, CELLS)
    for divergence in ("max", "manhattan", "euclidean", "keys"):
        for label, keys in (("10^4 keys", few), ("10^6 keys", many)):
            spec = HashTable(key="int64", divergence=divergence)
            yield f"HashTable, {label}", spec, partial(_add_pairs, keys, ones)
    for label, keys in (("10^4 members", few), ("10^6 members", many)):
        yield f"Set, {label}", Set(key="int64"), partial(_add_members, keys)
    for divergence in ("max", "manhattan", "euclidean"):
        array = Matrix(rows=1000, cols=CELLS // 1000, divergence=divergence)
        yield "Matrix, dense", array, lambda state: _counted(state.add_dense(dense), CELLS)
        yield "Matrix, 10^6 random cells", array, lambda state: _counted(state.add_at(many, ones), ITEMS)
        vector = Vector(size=CELLS, divergence=divergence)
        yield "Vector, dense", vector, lambda state: _counted(state.add_dense(dense), CELLS)
    yield "Numeric", Numeric(), lambda state: _counted([state.add(1) for _ in range(1000)], 1000)


def _add_pairs(keys: Any, values: Any, state: Any) -> int:
    state.add(keys, values)
    return len(keys)


def _add_members(keys: Any, state: Any) -> int:
    state.add(keys)
    return len(keys)


def _counted(_: Any, items: int) -> int:
    return items


def _measure(name: str, spec: StateSpec, update: Update) -> dict[str, Any]:
    state = spec.open(HeapColumns(), "state")
    updating, measuring, items = [], [], 0
    for round_ in range(ROUNDS + 2):
        state.acknowledge()
        state.begin()
        started = time.perf_counter()
        items = update(state)
        updated = time.perf_counter()
        state.update_drift()
        measured = time.perf_counter()
        if round_ >= 2:
            updating.append(updated - started)
            measuring.append(measured - updated)
    seconds, upkeep_seconds = statistics.median(updating), statistics.median(measuring)
    return {
        "state": name,
        "divergence": spec.distance.value,
        "million_updates_per_second": items / seconds / 1e6,
        "upkeep_share": upkeep_seconds / seconds,
    }
