"""A process may be killed at any store of a rebuild or while it discards a state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from afspark.model.states import HashTable, HeapColumns, Set, StateSpec
from afspark.model.states.conformance import NAME, image, observed
from afspark.model.states.scalars import Slot
from tests.unit.states.test_kills import SPECS, change, finish, opened, recording

KEYED = [spec for spec in SPECS if isinstance(spec, HashTable | Set)]


def named(spec: StateSpec) -> str:
    return "-".join(map(str, spec.to_json().values()))


def seen(state: Any) -> dict[str, Any]:
    return {**observed(state), "size": None}


def thinned(spec: StateSpec) -> tuple[HeapColumns, Any]:
    """A state from which most keys were removed: some durably, some not, and some came anew."""
    columns, state = opened(spec)
    random = np.random.default_rng(5)
    for theta, removed in ((0.0, range(500)), (1e6, range(480, 560))):
        state.acknowledge()
        state.begin()
        change(state, "remove", np.array(removed), random)
        change(state, "add", np.arange(550, 570), random)
        state.update_drift()
        state.issue(theta)
    state.acknowledge()
    return columns, state


@pytest.mark.parametrize("spec", KEYED, ids=named)
def test_killed_while_rebuilding(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, state = thinned(spec)
    before, cells = seen(state), state.size
    complete = [finish(spec.open(columns.copy(), NAME))]
    with recording(columns, monkeypatch, 4) as recorder:
        state.rebuild()
    complete.append(finish(spec.open(columns.copy(), NAME)))
    assert sorted(map(str, complete[0]["values"])) == sorted(map(str, complete[1]["values"]))
    assert seen(state) == before
    alive = len(image(state.export()).keys() | image(state.dump()).keys())
    assert state.size == alive < cells
    assert len(recorder.left) > 10
    for left in recorder.left:
        found = left.copy()
        state = spec.open(found, NAME)
        assert seen(state) == before
        assert state.size in (cells, alive)
        generation = found.arrays()[f"{NAME}.meta"][Slot.GENERATION]
        prefix = f"{NAME}~{generation}." if generation else f"{NAME}."
        assert all(name.startswith(prefix) for name in found.arrays() if name != f"{NAME}.meta")
        state.rollback()
        assert seen(state) == before
    for left in recorder.left[:: max(1, len(recorder.left) // 20)]:
        assert finish(spec.open(left.copy(), NAME)) in complete
    for left in recorder.left[:: max(1, len(recorder.left) // 20)]:
        state = spec.open(left.copy(), NAME)
        state.rebuild()
        assert seen(state) == before
        state.rebuild()
        assert seen(state) == before and state.size == alive


@pytest.mark.parametrize("spec", SPECS, ids=named)
def test_killed_while_discarding(spec: StateSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, state = opened(spec)
    if isinstance(spec, HashTable | Set):
        state.acknowledge()
        state.rebuild()
    before, fresh = observed(state), observed(spec.open(HeapColumns(), NAME))
    with recording(columns, monkeypatch, 5) as recorder:
        state.discard()
    assert columns.arrays() == {} and len(recorder.left) > 5
    for left in recorder.left[1:]:
        found = left.copy()
        state = spec.open(found, NAME)
        assert observed(state) == fresh
        assert finish(state)["drift"] > 0.0
        state.discard()
        assert found.arrays() == {}
    assert observed(spec.open(recorder.left[0], NAME)) == before


def test_a_failed_rebuild_leaves_the_state_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, state = thinned(KEYED[0])
    before, names = observed(state), set(columns.arrays())
    opening = columns.open

    def full(name: str, dtype: Any, length: int) -> Any:
        if name.endswith(".shadow"):
            raise MemoryError
        return opening(name, dtype, length)

    with monkeypatch.context() as patch:
        patch.setattr(columns, "open", full)
        with pytest.raises(MemoryError):
            state.rebuild()
    assert set(columns.arrays()) == names
    assert observed(state) == before
    state.rebuild()
    assert seen(state) == {**before, "size": None}
