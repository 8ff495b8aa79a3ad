"""Tables and sets from which keys are removed: what is there, what a backup says, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.model.kernels import cell_kernels as cell_kernel
from afspark.model.states import HashTable, HeapColumns, Set, StateSpec
from afspark.model.states.keyed import REBUILD_FLOOR


def opened(spec: StateSpec) -> Any:
    state = spec.open(HeapColumns(), "s")
    state.begin()
    return state


def commit(state: Any, theta: float = 0.0) -> pa.RecordBatch | None:
    state.update_drift()
    pairs = state.issue(theta)
    state.acknowledge()
    state.begin()
    return pairs


def test_a_key_with_value_0_is_not_there() -> None:
    table = opened(HashTable(key="int64"))
    table.add([1, 2, 3], [5, 0, 7])
    table.add([3], -7)
    assert table.contains([1, 2, 3, 4]).tolist() == [True, False, False, False]
    assert len(table) == 1 and table.size == 3
    assert table.export().to_pydict() == {"key": [1], "value": [5]}


def test_unknown_keys_are_not_remembered_by_removing_them() -> None:
    for spec in (HashTable(), Set()):
        state = opened(spec)
        state.remove(["a", "b"])
        assert state.size == 0
        assert state.changed().num_rows == 0


def test_removal_is_part_of_backups() -> None:
    members = opened(Set())
    members.add(["a", "b", "c"])
    first = commit(members)
    members.remove(["b", "x"])
    second = commit(members)
    assert second.to_pydict() == {"key": [b"b"], "present": [False]}
    assert members.members().to_pylist() == [b"a", b"c"]
    restored: Any = Set().open(HeapColumns(), "s")
    restored.restore([first, second])
    assert restored.members().to_pylist() == [b"a", b"c"]
    restored = Set().open(HeapColumns(), "s")
    restored.restore([second])
    assert restored.size == 0


def test_keys_that_come_and_go_are_counted_both() -> None:
    """The number of keys stays the same, the keys do not."""
    members = opened(Set(key="int64"))
    members.add(np.arange(10))
    commit(members)
    members.remove(np.arange(3))
    members.add(np.arange(10, 13))
    members.update_drift()
    assert len(members) == 10
    assert members.drift() == members.divergence() == 6.0
    assert members.issue(6.0) is None
    assert members.issue(5.9).num_rows == 4


def test_without_removal_it_is_the_difference_of_the_numbers_of_keys() -> None:
    table = opened(HashTable(key="int64", divergence="keys"))
    sizes = [0]
    for batch in range(5):
        table.add(np.arange(batch * 7, batch * 7 + 20), 1)
        table.update_drift()
        sizes.append(len(table))
        assert table.drift() == sizes[-1] - sizes[0]
        table.begin()


def test_values_are_backed_up_at_threshold_0_also_by_number_of_keys() -> None:
    table = opened(HashTable(divergence="keys"))
    table.add(["a", "b"], 1)
    commit(table)
    table.add(["a"], 1)
    assert commit(table, 3.0) is None
    assert table.drift() == 0.0
    table.add(["b"], 5)
    assert commit(table).to_pydict() == {"key": [b"a", b"b"], "value": [2, 6]}


def test_exact_tables_are_not_scanned_in_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(HashTable(key="int64", divergence="keys", exact=True))
    table.add(np.arange(10_000), 1)
    commit(table)
    seen: list[int] = []
    distances = cell_kernel.distances
    monkeypatch.setattr(
        cell_kernel, "distances", lambda cells, *rest: (seen.append(len(cells)), distances(cells, *rest))
    )
    for _ in range(3):
        table.add(np.arange(10), 1)
        commit(table, 50.0)
    assert seen == [10, 10, 10]


@pytest.mark.parametrize("spec", [HashTable(key="int64"), HashTable(), Set(key="int64"), Set()], ids=repr)
def test_cells_do_not_pile_up(spec: Any) -> None:
    """A window slides over ever new keys; memory stays that of the window."""
    state = opened(spec)
    width = REBUILD_FLOOR
    biggest = rebuilds = 0

    def named(numbers: Any) -> Any:
        return numbers if spec.key == "int64" else pa.array(numbers).cast(pa.string())

    for batch in range(40):
        new = named(np.arange(batch * 1000, batch * 1000 + 1000))
        state.add(new) if isinstance(spec, Set) else state.add(new, 1)
        if batch * 1000 >= width:
            state.remove(named(np.arange(batch * 1000 - width, batch * 1000 - width + 1000)))
        state.update_drift()
        state.issue(100.0 if batch % 3 else 0.0)
        state.acknowledge()
        if state.wants_rebuild:
            state.rebuild()
            rebuilds += 1
            assert not state.wants_rebuild
        biggest = max(biggest, state.size)
        state.begin()
    assert 2 <= rebuilds <= 10
    assert biggest <= 4 * width
    assert width - 1000 <= len(state) <= width + 1000


def test_what_is_only_durable_is_not_dead() -> None:
    members = opened(Set(key="int64"))
    members.add(np.arange(5000))
    commit(members)
    members.remove(np.arange(5000))
    assert commit(members, 1e9) is None
    members.update_drift()
    members.acknowledge()
    assert len(members) == 0 and not members.wants_rebuild
    assert members.dump().num_rows == 5000
    members.begin()
    members.update_drift()
    assert members.issue(0.0).num_rows == 5000
    members.acknowledge()
    assert members.wants_rebuild
    members.rebuild()
    assert members.size == 0


def test_rolled_back_removals_leave_no_trace() -> None:
    table = opened(HashTable(key="int64"))
    table.add(np.arange(5000), 1)
    commit(table)
    table.remove(np.arange(5000))
    table.update_drift()
    table.issue(0.0)
    table.rollback()
    assert not table.wants_rebuild and len(table) == 5000


def test_sets_unite() -> None:
    left, right = opened(Set()), opened(Set())
    left.add(["a", "b", "c"])
    left.remove(["a"])
    right.add(["c", "d"])
    right.merge_from(left.export())
    assert right.members().to_pylist() == [b"c", b"d", b"b"]
