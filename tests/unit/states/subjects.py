"""What the conformance checks are run on here: every built-in kind, with random updates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from afspark.model.states import (
    HashTable,
    HashTableState,
    Matrix,
    MatrixState,
    Numeric,
    NumericState,
    Set,
    SetState,
    Vector,
    VectorState,
)
from afspark.model.states.conformance import Random, Subject, keys_for
from afspark.model.states.keyed import KeyedSpec


def builtin_subjects() -> Iterator[Subject]:
    """Every built-in kind with every combination of its types and divergences."""
    for value in ("int64", "float64"):
        for divergence, key in itertools.product(HashTable.divergences, ("string", "int64")):
            yield Subject(HashTable(key=key, value=value, divergence=divergence), update_table)
        for divergence in Matrix.divergences:
            yield Subject(Matrix(rows=7, cols=13, value=value, divergence=divergence), update_array)
            yield Subject(Vector(size=3, value=value, divergence=divergence), update_array)
        yield Subject(Numeric(value=value, divergence="difference"), update_number)
    for key in ("string", "int64"):
        yield Subject(Set(key=key), update_set)
        yield Subject(Set(key=key, null_key=True), update_set)
        yield Subject(HashTable(key=key, null_key=True), update_table)
        yield Subject(HashTable(key=key, divergence="keys", null_key=True), update_table)
    yield Subject(HashTable(exact=True, divergence="manhattan"), update_table)
    yield Subject(HashTable(exact=True, divergence="keys"), update_table)
    yield Subject(Matrix(rows=7, cols=13, exact=True, divergence="euclidean"), update_array)
    yield Subject(Vector(exact=True), update_array)
    yield Subject(Set(exact=True), update_set)


def amounts(value: str, count: int, random: Random) -> np.ndarray[Any, Any]:
    """Small and large amounts of either sign, some of them zero."""
    scale = 10.0 ** random.integers(0, 4)
    drawn = random.normal(0.0, scale, count) * (random.random(count) < 0.9)
    return np.rint(drawn).astype(np.int64) if value == "int64" else drawn


def _some_keys(spec: KeyedSpec, random: Random) -> Any:
    count = int(random.integers(0, 200))
    keys = keys_for(spec.key, random.integers(0, int(random.choice([20, 300, 5000])), count))
    if not spec.null_key:
        return keys
    return pc.if_else(pa.array(random.random(count) < 0.1), None, pa.array(keys))


def update_table(table: HashTableState, random: Random) -> None:
    """Adds to, overwrites or removes keys of which some are new and some repeat."""
    keys = _some_keys(table.spec, random)
    way = random.random()
    if way < 0.2:
        table.remove(keys)
        return
    (table.add if way < 0.7 else table.put)(keys, amounts(table.get([]).dtype.name, len(keys), random))


def update_set(members: SetState, random: Random) -> None:
    """Adds or removes keys of which some are new and some repeat."""
    (members.add if random.random() < 0.6 else members.remove)(_some_keys(members.spec, random))


def update_array(array: MatrixState | VectorState, random: Random) -> None:
    """One of the three ways to update a matrix or vector; a vector may grow a little."""
    reach = array.size + (int(random.integers(0, 9)) if isinstance(array, VectorState) else 0)
    way = random.integers(0, 3)
    if way == 0:
        delta = amounts(array.spec.value, reach, random) * (random.random(reach) < random.random())
        array.add_dense(delta.astype(array.values.dtype))
        return
    count = int(random.integers(0, 60)) if reach else 0
    cells = random.integers(0, max(reach, 1), count)
    (array.add_at if way == 1 else array.put_at)(cells, amounts(array.spec.value, count, random))


def update_number(number: NumericState, random: Random) -> None:
    """Adds to, or overwrites, the number."""
    (number.add if random.random() < 0.8 else number.put)(amounts(number.spec.value, 1, random)[0])
