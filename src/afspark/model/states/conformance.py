"""What every kind of state must do, as checks that need nothing but the public interface.

A kind of one's own is checked by one call::

    from afspark.model.states import conformance

    conformance.check_all(MySpec(...), update=lambda state, random: ...)

where ``update`` makes one random update in an open transaction, by the given numpy generator only. A failed
check raises ``AssertionError``.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.model.divergence import Divergence
from afspark.model.states.columns import HeapColumns
from afspark.model.states.state import State, StateSpec, state_kinds

NAME = "subject"
_ROUNDING = 1e-9

Random = np.random.Generator
Update = Callable[[Any, Random], None]


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


def keys_for(key: str, numbers: np.ndarray[Any, Any]) -> Any:
    """Keys of that type, one for each number; strings of different lengths."""
    if key == "int64":
        return numbers
    return pa.array([b"k" * int(number % 23) + str(number).encode() for number in numbers], pa.binary())


def image(batch: pa.RecordBatch | None) -> dict[Any, Any]:
    """Pairs as a dict from key or index to value; a column without keys from its row numbers."""
    if batch is None:
        return {}
    *keys, values = (column.to_pylist() for column in batch.columns)
    keys = keys[0] if keys else list(range(batch.num_rows))
    result = dict(zip(keys, values, strict=True))
    assert len(result) == batch.num_rows, "a cell appears twice"
    return result


def present(batch: pa.RecordBatch | None) -> dict[Any, Any]:
    """The pairs that are not zero: all but the one that may tell the length of a vector."""
    return {key: value for key, value in image(batch).items() if value != 0}


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
    state.update_drift()
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
            state.update_drift()
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
        # One more cell may be there to tell the length.
        allowed = differing | {key for key in (values.keys() - durable.keys()) if key == state.size - 1}
        assert differing <= set(image(state.issue(0.0))) <= allowed
        assert differing <= set(image(state.issue(0.0, everything=True))) <= allowed
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
        state.update_drift()
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
    assert present(restored.export()) == present(state.dump())
    assert restored.divergence() == restored.drift() == 0.0
    seed = int(random.integers(2**31))
    pairs = transact(subject, restored, np.random.default_rng(seed), 0.0)
    assert set(present(pairs)) <= set(image(restored.changed()))
    if images and images[-1].num_rows:
        try:
            restored.restore(images)
        except UsageError:
            return
        raise AssertionError("restore onto a used state is accepted")


def check_overwrite(subject: Subject, random: Random) -> None:
    """A copy that is given what was issued since it was made has the same values, also if it has had some of it."""
    state, copy = subject.spec.open(HeapColumns(), NAME), subject.spec.open(HeapColumns(), NAME)
    for _ in range(8):
        seed = int(random.integers(2**31))
        if random.random() < 0.3:
            transact(subject, copy, np.random.default_rng(seed), math.inf)
        pairs = transact(subject, state, np.random.default_rng(seed), 0.0)
        copy.begin()
        if pairs is not None:
            copy.overwrite(pairs)
        copy.update_drift()
        state.acknowledge()
        assert present(copy.export()) == present(state.export())
    copy.begin()
    copy.update_drift()
    copy.issue(0.0, everything=True)
    assert present(copy.dump()) == present(state.dump())
    copy.rollback()
    assert present(copy.export()) == present(state.export())


def check_memory(subject: Subject, random: Random) -> None:
    """``memory`` counts at least two numbers a cell, and what it counts is really held, until it is discarded."""
    columns = HeapColumns()
    state = subject.spec.open(columns, NAME)
    for _ in range(5):
        transact(subject, state, random, 0.0)
    assert state.memory >= 16 * state.size
    held = sum(array.nbytes for array in columns.arrays().values())
    assert state.memory == held
    state.discard()
    assert columns.arrays() == {}


def check_discard(subject: Subject, random: Random) -> None:
    """A discarded state takes nothing more; opened again it is fresh, and its neighbour is untouched."""
    columns = HeapColumns()
    neighbour = subject.spec.open(columns, NAME + "@2")
    transact(subject, neighbour, random, 0.0)
    seen = observed(neighbour)
    state = subject.spec.open(columns, NAME)
    for _ in range(int(random.integers(1, 4))):
        transact(subject, state, random, thresholds(random))
    state.discard()
    state.rollback()
    state.acknowledge()
    try:
        state.begin()
    except UsageError:
        assert observed(neighbour) == seen
        assert observed(subject.spec.open(columns, NAME)) == observed(subject.spec.open(HeapColumns(), NAME))
        return
    raise AssertionError("a discarded state goes on")


def check_merge(subject: Subject, random: Random) -> None:
    """Merging an export into a fresh state gives the same values; merging is an update like any other. A kind
    that cannot be merged says so.
    """
    left, right = subject.spec.open(HeapColumns(), NAME), subject.spec.open(HeapColumns(), NAME)
    for _ in range(3):
        transact(subject, left, random, thresholds(random))
        transact(subject, right, random, thresholds(random))
    fresh = subject.spec.open(HeapColumns(), NAME)
    fresh.begin()
    try:
        fresh.merge_from(left.export())
    except UsageError:
        return
    fresh.update_drift()
    assert image(fresh.export()) == image(left.export())
    assert math.isclose(fresh.divergence(), fresh.drift(), rel_tol=_ROUNDING)
    right.acknowledge()
    before, theirs, ours = observed(right), image(left.export()), image(right.export())
    right.begin()
    right.merge_from(left.export())
    assert image(right.export()).keys() <= theirs.keys() | ours.keys()
    assert image(right.changed()).keys() == theirs.keys()
    right.rollback()
    assert observed(right) == before


def check_removal(subject: Subject, random: Random) -> None:
    """Removed keys are gone from values and, once durable, from backups; unknown ones take no cell. Kinds that
    have no ``remove`` pass.
    """
    state: Any = subject.spec.open(HeapColumns(), NAME)
    if not hasattr(state, "remove"):
        return
    for _ in range(4):
        transact(subject, state, random, 0.0)
        state.acknowledge()
        kept = image(state.export())
        gone = [key for key in kept if random.random() < 0.5]
        cells = state.size
        state.begin()
        state.remove(gone + gone[:3])
        state.remove(keys_for(subject.spec.to_json()["key"], np.arange(10**6, 10**6 + 50)))
        state.update_drift()
        assert state.size == cells
        left = {key: value for key, value in kept.items() if key not in set(gone)}
        assert image(state.export()) == left
        assert len(state) == len(left)
        assert set(image(state.issue(0.0))) == set(gone)
        state.acknowledge()
        assert image(state.dump()) == left


def check_rebuild(subject: Subject, random: Random) -> None:
    """``rebuild`` changes nothing that can be seen but the number of cells, as often as it is called."""
    columns = HeapColumns()
    state: Any = subject.spec.open(columns, NAME)
    for _ in range(4):
        transact(subject, state, random, thresholds(random))
        state.acknowledge()
        if hasattr(state, "remove"):
            state.begin()
            state.remove(state.export().column("key").slice(0, 100))
            state.update_drift()
            state.issue(thresholds(random))
            state.acknowledge()
        before = observed(state)
        alive = len(image(state.export()).keys() | image(state.dump()).keys())
        state.rebuild()
        assert not state.wants_rebuild
        _assert_alike(observed(state), before)
        if hasattr(state, "remove"):
            assert state.size == alive
        columns, state = _reopened(subject, columns)
        _assert_alike(observed(state), before)
        transact(subject, state, random, thresholds(random))
        state.rollback()
        _assert_alike(observed(state), before)
    state.begin()
    if hasattr(state, "remove"):
        try:
            state.rebuild()
        except UsageError:
            return
        raise AssertionError("rebuilt in the midst of a transaction")


def _assert_alike(seen: dict[str, Any], before: dict[str, Any]) -> None:
    """The same but for the number of cells; a sum over fewer cells is rounded elsewhere."""
    assert math.isclose(seen["divergence"], before["divergence"], rel_tol=_ROUNDING)
    assert all(seen[what] == before[what] for what in ("values", "durable", "drift"))


CHECKS: dict[str, Callable[[Subject, Random], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}
"""The checks by name."""


def check(name: str, subject: Subject, seed: int = 0) -> None:
    """Runs one check on one subject."""
    CHECKS[name](subject, np.random.default_rng(seed))


def check_all(spec: StateSpec, update: Update, *, seeds: Iterable[int] = range(3)) -> None:
    """Runs every check on a specification, for each of the seeds."""
    subject = Subject(spec, update)
    for seed in seeds:
        for name in CHECKS:
            check(name, subject, seed)
