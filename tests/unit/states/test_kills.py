"""A process may be killed at any store: whatever it leaves behind, the next one finds a state it can put
right.

The recorder keeps a copy of all columns before every line of state code, and, for each kernel call, copies in
which only an arbitrary part of the kernel's stores has happened, since a compiler may reorder them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from afspark.model import states
from afspark.model.kernels import cell_kernels as cells
from afspark.model.kernels import matrix_kernels as matrix
from afspark.model.kernels import table_kernels as table
from afspark.model.states import (
    HashTable,
    HeapColumns,
    Matrix,
    Numeric,
    Own,
    Set,
    State,
    StateSpec,
    Vector,
)
from afspark.model.states.conformance import NAME, observed
from afspark.model.states.scalars import Slot, TransactionPhase
from tests.unit.states.own_states import Tally
from tests.unit.states.subjects import amounts

STATE_CODE = str(Path(states.__file__).parent)
WRITERS = {
    cells: ["journal_cells", "add_integers", "add_floats", "put_cells", "undo_cells", "move_shadows"],
    table: ["locate_integers", "locate_bytes", "index_integers", "index_hashes", "erase_from"],
    matrix: ["journal_span", "add_span_integers", "add_span_floats"],
}


class Recorder:
    """Collects what a killed process could have left."""

    def __init__(self, columns: HeapColumns, random: np.random.Generator) -> None:
        self.columns = columns
        self.random = random
        self.left: list[HeapColumns] = []
        self.kernels: set[str] = set()

    def keep(self, columns: HeapColumns) -> None:
        if not self.left or not _same(self.left[-1], columns):
            self.left.append(columns.copy())

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(STATE_CODE):
            return None
        self.keep(self.columns)
        return self.trace

    def partial(self, name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            before = self.columns.copy()
            result = kernel(*arguments)
            self.kernels.add(name)
            for _ in range(3):
                self.keep(_part(before, self.columns, self.random))
            return result

        return call


def _same(left: HeapColumns, right: HeapColumns) -> bool:
    ours, theirs = left.arrays(), right.arrays()
    return ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)


def _part(before: HeapColumns, after: HeapColumns, random: np.random.Generator) -> HeapColumns:
    """``before`` with some of the stores that lead to ``after``: any subset, or all up to some element."""
    mixed = before.copy()
    any_subset = random.random() < 0.5
    for name, array in mixed.arrays().items():
        final = after.arrays()[name]
        stores = np.flatnonzero(array != final)
        done = stores[random.random(len(stores)) < 0.5] if any_subset else stores[: random.integers(0, len(stores) + 1)]
        array[done] = final[done]
    return mixed


@contextmanager
def recording(columns: HeapColumns, monkeypatch: pytest.MonkeyPatch, seed: int) -> Iterator[Recorder]:
    recorder = Recorder(columns, np.random.default_rng(seed))
    with monkeypatch.context() as patch:
        for module, names in WRITERS.items():
            for name in names:
                patch.setattr(module, name, recorder.partial(name, getattr(module, name)))
        outside = sys.gettrace()
        sys.settrace(recorder.trace)
        try:
            yield recorder
        finally:
            sys.settrace(outside)
    recorder.keep(columns)


def update(state: Any, seed: int) -> None:
    """A batch that grows every array of a table, doubles its index, and touches old and new cells, some
    twice.
    """
    random = np.random.default_rng(seed)
    match state.spec:
        case Matrix() | Vector():
            delta = np.zeros(state.size, state.values.dtype)
            delta[13:22] = 3
            state.add_dense(delta)
            reach = state.size + (300 if isinstance(state.spec, Vector) else 0)
            state.add_at(random.integers(0, reach, 40), amounts(state.spec.value, 40, random))
            state.put_at(random.integers(0, state.size, 10), amounts(state.spec.value, 10, random))
        case Numeric():
            state.add(500)
            state.add(25)
        case Own():
            for number in random.integers(0, 200, 60).tolist():
                state.own.see(number)
            state.update_drift()
            state.own.see(1)
        case Set() | HashTable():
            for span, how in ((900, "add"), (1500, "add"), (400, "put"), (600, "remove")):
                change(state, how, random.integers(0, span, 400), random)


def change(state: Any, how: str, numbers: Any, random: np.random.Generator) -> None:
    """Adds, puts or removes keys made of numbers."""
    keys = numbers if state.spec.key == "int64" else [f"key-{number}" for number in numbers]
    if how == "remove":
        state.remove(keys)
    elif isinstance(state.spec, Set):
        state.add(keys)
    else:
        getattr(state, how)(keys, amounts(state.spec.value, len(numbers), random))


def prepare(state: Any) -> None:
    """Two committed transactions, so that values, shadows and books are all non-trivial; about 500 keys."""
    for seed, theta in ((1, 50.0), (2, 20.0)):
        random = np.random.default_rng(seed)
        state.begin()
        if isinstance(state.spec, Set | HashTable):
            change(state, "add", random.integers(0, 600, 500), random)
        elif isinstance(state.spec, Matrix | Vector):
            reach = max(state.size, 50)
            state.add_at(random.integers(0, reach, 60), amounts(state.spec.value, 60, random))
        else:
            update(state, seed)
        state.update_drift()
        state.issue(theta)
        if seed == 1:
            state.acknowledge()


SPECS = [
    HashTable(key="string", value="float64", divergence="manhattan"),
    HashTable(key="string", value="int64", divergence="max"),
    HashTable(key="int64", value="int64", divergence="euclidean"),
    Matrix(rows=6, cols=11, value="float64", divergence="max"),
    Matrix(rows=6, cols=11, value="int64", divergence="manhattan"),
    HashTable(key="int64", value="float64", divergence="keys"),
    Set(key="string"),
    Vector(size=9, value="float64", divergence="euclidean"),
    Vector(divergence="max"),
    Numeric(),
    Own(Tally, 100),
]


def opened(spec: StateSpec) -> tuple[HeapColumns, State]:
    columns = HeapColumns()
    state = spec.open(columns, NAME)
    prepare(state)
    return columns, state


def finish(state: State) -> dict[str, Any]:
    state.begin()
    update(state, 3)
    state.update_drift()
    state.issue(20.0)
    return {**observed(state), "changed": state.changed().to_pylist()}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(map(str, spec.to_json().values())))
def test_killed_during_a_batch(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, state = opened(spec)
    state.acknowledge()
    before = observed(state)
    complete = finish(spec.open(columns.copy(), NAME))
    state.begin()
    with recording(columns, monkeypatch, 0) as recorder:
        update(state, 3)
        state.update_drift()
        pairs = state.issue(20.0)
    assert pairs is not None
    if isinstance(spec, HashTable | Set):
        assert complete["size"] > 640, "the index was not doubled"
        assert recorder.kernels >= {"journal_cells", "put_cells"}
        assert recorder.kernels & {"index_integers", "index_hashes"}
    assert len(recorder.left) > 5
    for left in recorder.left:
        state = spec.open(left.copy(), NAME)
        state.rollback()
        assert observed(state) == before
    for left in recorder.left[:: max(1, len(recorder.left) // 40)]:
        state = spec.open(left.copy(), NAME)
        state.rollback()
        assert finish(state) == complete


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(map(str, spec.to_json().values())))
def test_killed_during_rollback(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, state = opened(spec)
    state.acknowledge()
    before = observed(state)
    finish(state)
    with recording(columns, monkeypatch, 1) as recorder:
        state.rollback()
    assert "undo_cells" in recorder.kernels or isinstance(spec, Own)
    assert len(recorder.left) > 2
    for left in recorder.left:
        state = spec.open(left.copy(), NAME)
        state.rollback()
        assert observed(state) == before


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(map(str, spec.to_json().values())))
def test_killed_between_two_batches(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """``acknowledge`` and ``begin`` are simply called again; from the moment ``begin`` returned, rollback is
    right as well.
    """
    columns, state = opened(spec)
    acknowledged = spec.open(columns.copy(), NAME)
    acknowledged.acknowledge()
    expected = observed(acknowledged)
    with recording(columns, monkeypatch, 2) as recorder:
        state.acknowledge()
        state.begin()
    assert "move_shadows" in recorder.kernels or isinstance(spec, Own)
    assert len(recorder.left) > 5
    for left in recorder.left:
        state = spec.open(left.copy(), NAME)
        state.acknowledge()
        assert observed(state) == expected
        state.begin()
        state.rollback()
        assert observed(state) == expected
    # Once the move of the shadows has been announced, every way of going on completes it.
    announced = [
        left for left in recorder.left if left.arrays()[f"{NAME}.meta"][Slot.PHASE] == TransactionPhase.ACKNOWLEDGING
    ]
    assert len(announced) > 1
    for left in [*announced, recorder.left[-1]]:
        state = spec.open(left.copy(), NAME)
        state.rollback()
        assert observed(state) == expected
        state = spec.open(left.copy(), NAME)
        state.begin()
        state.rollback()
        assert observed(state) == expected


@pytest.mark.parametrize("spec", SPECS[:3], ids=lambda spec: "-".join(map(str, spec.to_json().values())))
def test_killed_while_opened_for_the_first_time(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = HeapColumns()
    with recording(columns, monkeypatch, 3) as recorder:
        spec.open(columns, NAME)
    assert len(recorder.left) > 3
    for left in recorder.left:
        state = spec.open(left.copy(), NAME)
        assert state.size == 0 and state.divergence() == 0.0
        finish(state)
        assert state.size > 640


def test_leftover_indices_are_dropped() -> None:
    spec = HashTable(key="int64")
    columns = HeapColumns()
    state = spec.open(columns, NAME)
    state.begin()
    state.add(np.arange(100), 1)
    columns.open(f"{NAME}.index.11", np.dtype(np.uint32), 2048)[::4] = 77
    state.add(np.arange(1000), 1)
    assert np.count_nonzero(columns.arrays()[f"{NAME}.index.11"]) == 1000
    assert state.get(np.arange(1000)).sum() == 1100
    columns.open(f"{NAME}.index.10", np.dtype(np.uint32), 1024)[::4] = 77
    state = spec.open(columns, NAME)
    assert columns.length(f"{NAME}.index.10") == 0
    assert state.get(np.arange(1000)).sum() == 1100
