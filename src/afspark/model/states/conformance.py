"""What every kind of state must do, as checks that need nothing but the public interface.

A test calls ``check`` for each subject; a kind of one's own is checked the same way::

    from afspark.model.states import conformance

    for name in conformance.CHECKS:
        conformance.check(name, conformance.Subject(MySpec(...), update=lambda state, random: ...), seed=0)

A failed check raises ``AssertionError``.
"""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.states.base import State, StateSpec, state_kinds
from afspark.model.states.columns import HeapColumns
from afspark.model.states.matrix import Matrix, MatrixState
from afspark.model.states.table import HashTable, HashTableState

Random = np.random.Generator
Update = Callable[[Any, Random], None]
NAME = "subject"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Subject:
    """A specification, and a function that makes one random update (by the given generator only) in an open
    transaction.
    """

    spec: StateSpec
    update: Update

    def __str__(self) -> str:
        fields = self.spec.to_json()
        return "-".join(str(value) for key, value in fields.items() if key != "exact" or value)


def builtin_subjects() -> Iterator[Subject]:
    """Every built-in kind with every combination of its types and divergences."""
    for value, divergence in itertools.product(("int64", "float64"), Divergence):
        for key in ("string", "int64"):
            yield Subject(HashTable(key=key, value=value, divergence=divergence), update_table)
        yield Subject(Matrix(rows=7, cols=13, value=value, divergence=divergence), update_matrix)
    yield Subject(HashTable(exact=True, divergence="manhattan"), update_table)
    yield Subject(Matrix(rows=7, cols=13, exact=True, divergence="euclidean"), update_matrix)


def amounts(value: str, count: int, random: Random) -> np.ndarray[Any, Any]:
    """Small and large amounts of either sign, some of them zero."""
    scale = 10.0 ** random.integers(0, 4)
    drawn = random.normal(0.0, scale, count) * (random.random(count) < 0.9)
    return np.rint(drawn).astype(np.int64) if value == "int64" else drawn


def update_table(table: HashTableState, random: Random) -> None:
    """Adds to, or overwrites, keys of which some are new and some repeat."""
    count = int(random.integers(0, 200))
    numbers = random.integers(0, int(random.choice([20, 300, 5000])), count)
    keys: Any = numbers
    if table.spec.key == "string":
        keys = pa.array([b"k" * int(number % 23) + str(number).encode() for number in numbers], pa.binary())
    values = amounts(table.spec.value, count, random)
    (table.add if random.random() < 0.7 else table.put)(keys, values)


def update_matrix(matrix: MatrixState, random: Random) -> None:
    """One of the three ways to update a matrix."""
    way = random.integers(0, 3)
    if way == 0:
        delta = amounts(matrix.spec.value, matrix.size, random) * (random.random(matrix.size) < random.random())
        matrix.add_dense(delta.astype(matrix.values.dtype).reshape(matrix.values.shape))
        return
    count = int(random.integers(0, 60))
    cells = random.integers(0, matrix.size, count)
    (matrix.add_at if way == 1 else matrix.put_at)(cells, amounts(matrix.spec.value, count, random))


def image(batch: pa.RecordBatch | None) -> dict[Any, Any]:
    """Pairs as a dict from key or index to value."""
    if batch is None:
        return {}
    keys, values = (column.to_pylist() for column in batch.columns)
    result = dict(zip(keys, values, strict=True))
    assert len(result) == batch.num_rows, "a cell appears twice"
    return result


def observed(state: State) -> dict[str, Any]:
    """All that the public interface tells about a state; two states with equal observations are
    interchangeable.
    """
    return {
        "values": state.export().to_pylist(),
        "durable": image(state.dump()),
        "size": state.size,
        "divergence": state.divergence(),
        "drift": state.drift(),
    }


def transact(subject: Subject, state: State, random: Random, theta: float) -> pa.RecordBatch | None:
    """One whole transaction of a few updates."""
    state.begin()
    for _ in range(int(random.integers(0, 4))):
        subject.update(state, random)
    state.settle()
    return state.issue(theta)


def thresholds(random: Random) -> float:
    return float(random.choice([0.0, 0.5, 3.0, 100.0, 5000.0, math.inf]))


def _reopened(subject: Subject, columns: HeapColumns) -> tuple[HeapColumns, State]:
    copy = columns.copy()
    return copy, subject.spec.open(copy, NAME)


def check_specification(subject: Subject, random: Random) -> None:
    """A specification survives JSON and pickling, and its schema is that of its backups."""
    spec = subject.spec
    assert StateSpec.from_json(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.kind in state_kinds()
    state = spec.open(HeapColumns(), NAME)
    transact(subject, state, random, math.inf)
    for batch in (state.dump(), state.export(), state.changed()):
        assert batch.schema.equals(spec.pairs_schema)


def check_fresh(subject: Subject, random: Random) -> None:
    """A fresh state is empty, fully backed up, and refuses updates outside a transaction."""
    state = subject.spec.open(HeapColumns(), NAME)
    assert state.divergence() == state.drift() == 0.0
    assert state.dump().num_rows == state.changed().num_rows == 0
    state.rollback()
    state.acknowledge()
    try:
        for _ in range(20):
            subject.update(state, random)
    except UsageError:
        return
    raise AssertionError("updates outside a transaction are accepted")


def check_rollback(subject: Subject, random: Random) -> None:
    """``rollback`` restores what was before ``begin``: after any step, twice, in another process, and after
    ``issue``.
    """
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(8):
        before = observed(state)
        state.begin()
        steps = int(random.integers(0, 4))
        for _ in range(steps):
            subject.update(state, random)
        if random.random() < 0.7:
            state.settle()
            state.issue(thresholds(random))
        if random.random() < 0.5:
            columns, state = _reopened(subject, columns)
        state.rollback()
        assert observed(state) == before
        state.rollback()
        assert observed(state) == before
        assert state.changed().num_rows == 0
        columns, state = _reopened(subject, columns)
        assert observed(state) == before
        pairs = transact(subject, state, random, thresholds(random))
        if pairs is not None:
            state.acknowledge()


def check_replay(subject: Subject, random: Random) -> None:
    """After a rollback the same updates give the same state, the same pairs, and the same order of cells."""
    state = subject.spec.open(HeapColumns(), NAME)
    for _ in range(5):
        seed, theta = int(random.integers(2**31)), thresholds(random)
        first = transact(subject, state, np.random.default_rng(seed), theta)
        seen, changed = observed(state), state.changed()
        state.rollback()
        second = transact(subject, state, np.random.default_rng(seed), theta)
        assert observed(state) == seen
        assert state.changed().equals(changed)
        assert (first is None and second is None) or (first is not None and first.equals(second))
        state.acknowledge()


def check_guarantee(subject: Subject, random: Random) -> None:
    """With the issued pairs durable the divergence is within the threshold, for any order of thresholds."""
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    theta = 100.0
    for _ in range(30):
        if random.random() < 0.3:
            theta = thresholds(random)
        pairs = transact(subject, state, random, theta)
        values, durable = image(state.export()), image(state.dump())
        for key, value in image(pairs).items():
            assert values.get(key, 0) == value
            assert durable.get(key, 0) == value
        _, copy = _reopened(subject, columns)
        copy.acknowledge()
        assert image(copy.dump()) == durable
        bound = theta if not subject.spec.exact or theta == math.inf else 0.0
        assert copy.divergence() <= bound
        if theta == math.inf:
            assert pairs is None
        if random.random() < 0.8:
            state.acknowledge()


def check_books(subject: Subject, random: Random) -> None:
    """``drift`` follows ``divergence`` without looking at untouched cells."""
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(30):
        transact(subject, state, random, thresholds(random))
        if random.random() < 0.7:
            state.acknowledge()
        if random.random() < 0.2:
            columns, state = _reopened(subject, columns)
        exact, kept = state.divergence(), state.drift()
        slack = _ROUNDING * (1.0 + 1e6)
        assert kept >= exact - slack
        if subject.spec.distance is not Divergence.MAX:
            assert kept <= exact + slack


def check_minimal(subject: Subject, random: Random) -> None:
    """Nothing is issued within the threshold; threshold 0 issues each cell that differs and no other."""
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(10):
        transact(subject, state, random, math.inf)
        if not subject.spec.exact:
            assert state.issue(state.divergence() * 1.001 + 1.0, everything=True) is None
        values, durable = image(state.export()), image(state.dump())
        differing = {key for key in values.keys() | durable.keys() if values.get(key, 0) != durable.get(key, 0)}
        assert set(image(state.issue(0.0))) == differing
        assert set(image(state.issue(0.0, everything=True))) == differing
        state.acknowledge()
        assert state.divergence() == state.drift() == 0.0


def check_acknowledge(subject: Subject, random: Random) -> None:
    """Pending cells survive the process; unacknowledged ones are dropped by ``begin``; acknowledging twice is
    harmless.
    """
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(10):
        transact(subject, state, random, 0.0)
        durable = image(state.dump())
        columns, state = _reopened(subject, columns)
        state.acknowledge()
        assert image(state.dump()) == durable
        state.acknowledge()
        assert image(state.dump()) == durable
        assert state.divergence() == 0.0
        state.rollback()
        assert state.divergence() == 0.0
        transact(subject, state, random, 0.0)
        state.begin()
        assert image(state.dump()) == durable
        state.settle()
        state.issue(0.0)
        state.acknowledge()


def check_restore(subject: Subject, random: Random) -> None:
    """A full image and the partial backups after it give back the durable state; the last write of a cell
    wins.
    """
    state = subject.spec.open(HeapColumns(), NAME)
    images: list[pa.RecordBatch] = []
    for step in range(12):
        pairs = transact(subject, state, random, thresholds(random))
        if pairs is not None:
            images.append(pairs)
            state.acknowledge()
        if step == 5:
            images = [state.dump()]
    restored = subject.spec.open(HeapColumns(), NAME)
    restored.restore(images)
    assert image(restored.dump()) == image(state.dump())
    nonzero = {key: value for key, value in image(restored.export()).items() if value != 0}
    assert nonzero == image(state.dump())
    assert restored.divergence() == restored.drift() == 0.0
    seed = int(random.integers(2**31))
    pairs = transact(subject, restored, np.random.default_rng(seed), 0.0)
    assert set(image(pairs)) <= set(image(restored.changed()))
    if images and images[-1].num_rows:
        try:
            restored.restore(images)
        except UsageError:
            return
        raise AssertionError("restore onto a used state is accepted")


def check_memory(subject: Subject, random: Random) -> None:
    """``memory`` counts at least two numbers a cell, and what it counts is really held."""
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(5):
        transact(subject, state, random, 0.0)
    assert state.memory >= 16 * state.size
    held = sum(array.nbytes for array in columns.arrays().values())
    assert state.memory == held


CHECKS: dict[str, Callable[[Subject, Random], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}
"""The checks by name."""


def check(name: str, subject: Subject, seed: int = 0) -> None:
    """Runs one check on one subject."""
    CHECKS[name](subject, np.random.default_rng(seed))
