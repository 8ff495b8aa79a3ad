"""States of the user's own class."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.states import HeapColumns, Own, OwnState, StateSpec
from tests.unit.states.own_states import Tally


def test_what_cannot_be_sent_is_refused_at_once() -> None:
    class Local(OwnState):
        pass

    wrong: Any
    for wrong in (Local, int, Tally(3)):
        with pytest.raises(UsageError):
            Own(wrong)
    for wrong in (np.zeros(3), {1, 2}, (1, 2), object()):
        with pytest.raises(UsageError):
            Own(Tally, wrong)


def test_the_specification_names_class_and_arguments() -> None:
    spec = Own(Tally, 7, exact=True)
    document = spec.to_json()
    assert document["class"].endswith("own_states:Tally") and document["args"] == [7]
    assert StateSpec.from_json(document) == spec == pickle.loads(pickle.dumps(spec))
    assert spec != Own(Tally, 8, exact=True)


def test_the_object_follows_transactions_and_processes() -> None:
    columns = HeapColumns()
    state: Any = Own(Tally, 10).open(columns, "s")
    state.begin()
    state.own.see(3)
    state.update_drift()
    assert state.issue(1.0) is None
    state.acknowledge()
    assert Own(Tally, 10).open(columns.copy(), "s").view.counts == {3: 1}
    state.begin()
    state.own.see(3)
    state.update_drift()
    pairs = state.issue(1.0)
    state.rollback()
    assert state.view.counts == {3: 1}
    restored: Any = Own(Tally, 10).open(HeapColumns(), "s")
    restored.restore([pairs])
    assert restored.view.counts == {3: 2}
    with pytest.raises(UsageError):
        _ = restored.own


def test_updates_that_were_not_measured_are_kept() -> None:
    columns = HeapColumns()
    state: Any = Own(Tally, 10).open(columns, "s")
    for ended in (state.begin, state.acknowledge):
        state.begin()
        state.own.see(1)
        ended()
    assert Own(Tally, 10).open(columns.copy(), "s").view.counts == {1: 2}


def test_an_untouched_object_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    state: Any = Own(Tally, 10).open(HeapColumns(), "s")
    monkeypatch.setattr(Tally, "backup", lambda self: 1 / 0)
    state.begin()
    state.update_drift()
    assert state.issue(0.0) is None


def test_a_state_may_become_empty_again() -> None:
    columns = HeapColumns()
    state: Any = Own(Tally, 10).open(columns, "s")
    images = []
    for change in (lambda tally: tally.see(1), lambda tally: tally.counts.clear()):
        state.begin()
        change(state.own)
        state.update_drift()
        images.append(state.issue(0.0))
        state.acknowledge()
    assert state.dump().num_rows == 0 and state.divergence() == 0.0
    restored: Any = Own(Tally, 10).open(HeapColumns(), "s")
    restored.restore(images)
    assert restored.view.counts == {}


def test_schemas_are_checked() -> None:
    state = Own(Tally, 10).open(HeapColumns(), "s")
    with pytest.raises(UsageError):
        state.restore([pa.record_batch({"number": [1], "count": [1]})])
