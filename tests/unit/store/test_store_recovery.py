"""Chains of backups: growing, compacting, loading."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from afspark.errors import StoreError, UsageError
from afspark.store import (
    CommitRecord,
    CompactionRule,
    ObjectRef,
    OperatorRecord,
    Store,
    WorkerRecord,
    extend,
    load_chain,
    open_store,
    seal,
)
from afspark.store.compaction import Chain, garbage
from afspark.store.local import LocalStore


def _ref(name: str, cells: int = 1, full: bool = False) -> ObjectRef:
    return ObjectRef(name, "00" * 16, 10, cells, full)


@pytest.mark.parametrize(
    ("cells", "due"),
    [
        ([], False),
        ([(0, True)], False),
        ([(9, False)], False),
        ([(10, False)], True),
        ([(100, True)], False),
        ([(100, True), (50, False), (49, False)], False),
        ([(100, True), (50, False), (50, False)], True),
        ([(3, True), (9, False)], False),
        ([(3, True), (10, False)], True),
        ([(1000, True), *[(1, False)] * 4], True),
    ],
)
def test_when_to_compact(cells: list[tuple[int, bool]], due: bool) -> None:
    chain = [_ref(str(number), count, full) for number, (count, full) in enumerate(cells)]
    assert CompactionRule(floor_cells=10, longest=5).due(chain) is due


def test_compaction_rule_is_checked() -> None:
    for wrong in ({"floor_cells": 0}, {"longest": 0}):
        with pytest.raises(UsageError):
            CompactionRule(**wrong)


def test_extend() -> None:
    a, b, full, c = _ref("a"), _ref("b"), _ref("f", full=True), _ref("c")
    chain: Chain = ()
    previous: Chain = ()
    for new in (a, b, full, c):
        chain, previous = extend(chain, previous, new)
    assert (chain, previous) == ((full, c), (a, b))
    assert extend(chain, previous, _ref("g", full=True)) == ((_ref("g", full=True),), (full, c))


def test_garbage_protects_both_chains() -> None:
    def record(batch: int, chain: Chain, previous: Chain) -> CommitRecord:
        worker = WorkerRecord(0, 0, 0, 0, "h", {}, chain, previous)
        return CommitRecord(batch, "e", {"o": OperatorRecord(workers=(worker,))})

    a, b, c, d = (_ref(name) for name in "abcd")
    dropped = [record(0, (a,), ()), record(1, (b,), (a,))]
    assert garbage(dropped, [record(2, (c, d), (b,))]) == {"a"}
    assert garbage(dropped, []) == {"a", "b"}


class Backups:
    """Writes numbered backups of a one-cell state, so that a loaded state is told by its numbers."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def write(self, number: int, *, full: bool = False) -> ObjectRef:
        batch = pa.record_batch({"value": pa.array([number], pa.int64())})
        data = seal({"number": number}, {"state": batch} if number % 2 else {"state": batch, "second": batch})
        self.store.put(f"objects/{number}", data)
        return ObjectRef.of(f"objects/{number}", data, cells=1, full=full)


def _numbers(images: dict[str, list[pa.RecordBatch]], state: str = "state") -> list[int]:
    return [batch.column("value")[0].as_py() for batch in images.get(state, [])]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path)


@pytest.fixture
def chains(store: Store) -> tuple[Chain, Chain]:
    backups = Backups(store)
    previous = (backups.write(0, full=True), backups.write(1), backups.write(2))
    return (backups.write(3, full=True), backups.write(4), backups.write(5)), previous


def test_load_a_sound_chain(store: Store, chains: tuple[Chain, Chain]) -> None:
    loaded = load_chain(store, *chains)
    assert loaded.complete and loaded.used == chains[0]
    assert _numbers(loaded.images) == [3, 4, 5]
    assert _numbers(loaded.images, "second") == [4]
    assert [meta["number"] for meta in loaded.metas] == [3, 4, 5]


def test_load_nothing(store: Store) -> None:
    loaded = load_chain(store, ())
    assert (loaded.images, loaded.used, loaded.complete) == ({}, (), True)


def test_load_a_prefix(store: Store, chains: tuple[Chain, Chain]) -> None:
    store.delete([chains[0][1].name])
    loaded = load_chain(store, *chains)
    assert _numbers(loaded.images) == [3]
    assert [(item.name, item.reason) for item in loaded.damaged] == [("objects/4", "missing")]


def test_load_the_previous_chain(store: Store, chains: tuple[Chain, Chain]) -> None:
    store.put("objects/3", store.get("objects/3")[:-1])
    loaded = load_chain(store, *chains)
    assert _numbers(loaded.images) == [0, 1, 2]
    assert loaded.used == chains[1]
    assert [(item.name, item.reason) for item in loaded.damaged] == [("objects/3", "corrupt")]


def test_load_what_is_left_of_two_damaged_chains(store: Store, chains: tuple[Chain, Chain]) -> None:
    store.delete(["objects/3", "objects/1"])
    loaded = load_chain(store, *chains)
    assert _numbers(loaded.images) == [0]
    assert [item.name for item in loaded.damaged] == ["objects/3", "objects/1"]
    store.delete(["objects/0"])
    assert load_chain(store, *chains).images == {}


def test_a_sound_object_in_the_wrong_place_is_damage(store: Store, chains: tuple[Chain, Chain]) -> None:
    store.put("objects/4", store.get("objects/2"))
    loaded = load_chain(store, *chains)
    assert _numbers(loaded.images) == [3]
    assert [(item.name, item.reason) for item in loaded.damaged] == [("objects/4", "foreign")]


def test_an_outage_is_no_damage(tmp_path: Path, chains: tuple[Chain, Chain]) -> None:
    class Flaky(LocalStore):
        def get(self, name: str) -> bytes:
            if name == "objects/4":
                raise StoreError("timeout", name=name)
            return super().get(name)

    with pytest.raises(StoreError):
        load_chain(Flaky(str(tmp_path)), *chains)
