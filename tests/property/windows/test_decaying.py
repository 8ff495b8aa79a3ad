"""What a fading state shows is the sum of all items, each weighed by its age, however far apart their times are."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.state_label import StateLabel
from afspark.model.states import HashTable, HeapColumns, Matrix, Numeric, StateSpec, Vector
from afspark.model.windows import Decaying, Fading
from afspark.task.pane_states import PaneStates

KEYS = range(4)

#: how far an item's tick is from the newest: near, at the edge of what factors can express, beyond it, and back
STEPS = st.one_of(
    st.integers(-3, 40),
    st.sampled_from([-(10**12), -5000, -1100, 300, 340, 1000, 1074, 1075, 1100, 10**5, 17 * 10**8, 10**12]),
)
ITEMS = st.lists(st.tuples(STEPS, st.sampled_from(KEYS), st.floats(1e-3, 1e6)), max_size=12)
SPECS: list[StateSpec] = [
    HashTable(key="int64", value="float64"),
    Matrix(rows=1, cols=len(KEYS), value="float64"),
    Vector(size=len(KEYS), value="float64"),
]


def add(state: Any, key: int, amount: float) -> None:
    state.add([key], [amount]) if isinstance(state.spec, HashTable) else state.add_at([key], [amount])


def values(cells: Any) -> dict[int, float]:
    """Cells by key: of an array the last column but the value is the only one that varies."""
    *keys, value = cells.columns
    return dict(zip(keys[-1].to_pylist(), value.to_pylist(), strict=True))


class Worker:
    """A state in steps that are backed up at a threshold, and the sum it stands for."""

    def __init__(self, spec: StateSpec, window: Decaying) -> None:
        self.spec, self.window, self.columns = spec, window, HeapColumns()
        self.backups: list[Any] = []
        self.taken: list[tuple[int, int, float]] = []
        self.newest: int | None = None

    def opened(self, columns: HeapColumns | None = None) -> PaneStates:
        return PaneStates(columns or self.columns, {"state": self.spec}, paned=False, decaying=self.window)

    def step(self, items: list[tuple[int, int, float]], theta: float, *, first: int, interrupted: bool) -> None:
        panes = self.opened()
        panes.begin()
        ticks = self._apply(panes, items, first)
        if interrupted:
            # A new process finds the transaction open and does it again.
            panes = self.opened()
            panes.rollback()
            panes.begin()
            self._apply(panes, items, first)
        self.taken += [(tick, key, amount) for tick, (_, key, amount) in zip(ticks, items, strict=True)]
        known = [*ticks, *([] if self.newest is None else [self.newest])]
        self.newest = max(known, default=None)
        assert panes.fading is not None
        state = panes.of(None)["state"]
        state.update_drift()
        pairs = state.issue(panes.fading.threshold(theta, self.newest))
        if panes.fading.moved:
            self.backups = [panes.fading.stamped(state.dump())]
            panes.fading.written()
        elif pairs is not None:
            self.backups.append(panes.fading.stamped(pairs))
        panes.end()

    def _apply(self, panes: PaneStates, items: list[tuple[int, int, float]], first: int) -> list[int]:
        newest, ticks = self.newest, []
        for forward, key, amount in items:
            tick = (first if newest is None else newest) + forward
            newest = tick if newest is None else max(newest, tick)
            add(panes.at(tick, updating=True)["state"], key, amount)
            ticks.append(tick)
        return ticks

    def truth(self, tick: int) -> list[float]:
        weighed = [(key, amount * self.weight(tick - at)) for at, key, amount in self.taken]
        return [math.fsum(amount for of, amount in weighed if of == key) for key in KEYS]

    def weight(self, age: int) -> float:
        return self.window.decay ** min(age, 10**6)

    def restored(self) -> PaneStates:
        panes = self.opened(HeapColumns())
        panes.restore({StateLabel("state"): self.backups}, None)
        return panes


def shown(panes: PaneStates, tick: int) -> list[float]:
    found = values(panes.at(tick)["state"].export())
    return [found.get(key, 0.0) for key in KEYS]


def apart(some: list[float], others: list[float], allowed: float = 0.0) -> float:
    """The largest difference beyond what is allowed, relative to the numbers where they are large."""
    both = zip(some, others, strict=True)
    return max((abs(one - other) - allowed) / max(1.0, abs(other)) for one, other in both)


@settings(max_examples=150)
@given(
    st.sampled_from(SPECS),
    st.sampled_from([1e-300, 0.1, 0.5, 0.9, 0.999]),
    st.one_of(st.integers(-1000, 1000), st.just(17 * 10**8), st.just(-(2**50))),
    st.lists(st.tuples(ITEMS, st.booleans()), max_size=4),
    st.sampled_from([0.0, 1.0, 1e5]),
    st.sampled_from([0, 1, 50, 400, 10**4, 10**12]),
)
def test_a_fading_state_and_its_backup(
    spec: StateSpec,
    decay: float,
    first: int,
    steps: list[tuple[list[tuple[int, int, float]], bool]],
    theta: float,
    after: int,
) -> None:
    """The backup differs by at most θ at the newest tick of the step, and by less at any later one."""
    worker = Worker(spec, Decaying(decay, 1, by="processing"))
    for items, interrupted in steps:
        worker.step(items, theta, first=first, interrupted=interrupted)
        if worker.newest is None:
            continue
        for tick in (worker.newest, worker.newest + after):
            there = shown(worker.opened(), tick)
            assert apart(there, worker.truth(tick)) <= 1e-9
            left = theta * worker.weight(tick - worker.newest)
            assert apart(shown(worker.restored(), tick), there, left) <= 1e-9


def test_a_single_number_moves_as_well() -> None:
    panes = PaneStates(
        HeapColumns(), {"n": Numeric(value="float64")}, paned=False, decaying=Decaying(0.5, 1, column="at")
    )
    panes.begin()
    for tick in (0, 400, 401):
        panes.at(tick, updating=True)["n"].add(8)
    assert panes.at(401)["n"].value == 12 and panes.fading is not None and panes.fading.base == 400


@pytest.mark.parametrize("tick", [-(10**15), -2000, 1])
def test_a_number_before_any_time_counts_as_of_the_first_tick(tick: int) -> None:
    columns, window = HeapColumns(), Decaying(0.5, 1, column="at")
    panes = PaneStates(columns, {"n": Numeric(value="float64")}, paned=False, decaying=window)
    panes.begin()
    panes.at(None, updating=True)["n"].add(8)
    assert Fading(window, columns).base is None
    panes.at(tick, updating=True)["n"].add(1)
    assert panes.at(tick + 1)["n"].value == 4.5 and Fading(window, columns).base == tick
