"""Rebuilt and discarded states in columns that are files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afspark.model.states import HashTable, HeapColumns, Own, Set, Vector
from afspark.resident.mapped_columns import MappedColumns
from afspark.resident.open_folder import OpenFolder
from tests.unit.states.own_states import Tally, update_tally

NUMBER = 5000


@pytest.mark.parametrize("spec", [HashTable(key="int64"), HashTable(), Set(), Set(key="int64")], ids=repr)
def test_rebuilding_gives_files_back(spec: Any, tmp_path: Path) -> None:
    (tmp_path / "columns").mkdir()
    columns = MappedColumns(OpenFolder(tmp_path / "columns"))
    state = spec.open(columns, "s@17")
    names = np.arange(8 * NUMBER) if spec.key == "int64" else [f"word-{n}" for n in range(8 * NUMBER)]
    state.begin()
    state.add(names) if isinstance(spec, Set) else state.add(names, 1)
    state.update_drift()
    state.issue(0.0)
    state.acknowledge()
    full = columns.memory
    for generation in (1, 2):
        state.begin()
        state.remove(names[: NUMBER * (8 - generation)] if generation == 1 else names)
        state.update_drift()
        state.issue(0.0)
        state.acknowledge()
        assert state.wants_rebuild
        state.rebuild()
        assert columns.memory < full / 2
        assert all(name.startswith(f"s@17~{generation}.") for name in columns.names() if name != "s@17.meta")
        other = spec.open(MappedColumns(OpenFolder(tmp_path / "columns")), "s@17")
        assert len(other) == len(state) == (NUMBER if generation == 1 else 0)
        if generation == 1:
            state.begin()
            state.add(names) if isinstance(spec, Set) else state.add(names, 1)
            state.update_drift()
            state.issue(0.0)
            state.acknowledge()
    state.discard()
    assert columns.names() == []


def test_growing_and_discarding(tmp_path: Path) -> None:
    (tmp_path / "columns").mkdir()
    columns = MappedColumns(OpenFolder(tmp_path / "columns"))
    vector, tally = Vector().open(columns, "v"), Own(Tally, 9).open(columns, "t")
    vector.begin()
    vector.add_at([10_000], 1)
    vector.add_dense(np.ones(3, np.int64))
    vector.rollback()
    vector.begin()
    vector.add_at([3], 1)
    assert vector.values.tolist() == [0, 0, 0, 1]
    tally.begin()
    update_tally(tally, np.random.default_rng(1))
    tally.update_drift()
    heap = Own(Tally, 9).open(HeapColumns(), "t")
    heap.begin()
    update_tally(heap, np.random.default_rng(1))
    assert tally.export().equals(heap.export())
    vector.discard()
    tally.discard()
    assert columns.names() == []
