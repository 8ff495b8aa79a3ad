"""The item log gives back what was appended, whatever happened to its newest object."""

from __future__ import annotations

import pyarrow as pa
import pytest

from afspark.errors import StoreError
from afspark.push.receiver import item_log as itemlog
from afspark.push.receiver.item_log import ItemLog, LoadedLog
from afspark.push.receiver.lane_entries import LaneItems
from afspark.push.wire.messages import PunctuationMark
from afspark.push.wire.push_errors import Replaced, SchemaMismatch
from afspark.store.base import Names
from tests.property.store.faulty_store import Crash, FaultyStore, MemoryStore, Tear

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def record(producer: str, start: int, rows: int) -> LaneItems:
    numbers = list(range(start, start + rows))
    return LaneItems(
        producer, start, rows, pa.record_batch([numbers, [f"{producer} {n}" for n in numbers]], schema=SCHEMA)
    )


def contents(loaded: LoadedLog) -> list[object]:
    return [
        (
            found.producer,
            found.start,
            found.span,
            found.punctuation,
            found.mark,
            found.batch and found.batch.to_pylist(),
        )
        for _, found, _ in loaded.records
    ]


def as_contents(records: list[LaneItems]) -> list[object]:
    return contents(LoadedLog([("", found, 0) for found in records]))


MIXED = [
    record("a/1", 0, 3),
    LaneItems("a/1", 3, 1, punctuation=PunctuationMark(time=4.5)),
    record("b/1", 10, 2),
    LaneItems("b/1", 12, 0, mark=True),
    record("a/1", 4, 1),
]


def test_what_was_appended_is_loaded_in_order() -> None:
    store = MemoryStore()
    log = ItemLog(store, 3, SCHEMA)
    names = log.append(MIXED[:3]) + log.append(MIXED[3:])
    assert len(set(names)) == 2 and names == sorted(names)
    loaded = ItemLog(store, 3, SCHEMA).load()
    assert contents(loaded) == as_contents(MIXED)
    assert [name for name, _, _ in loaded.records] == names
    assert (loaded.torn, loaded.damaged) == ([], [])


def test_lanes_do_not_see_each_other() -> None:
    store = MemoryStore()
    ItemLog(store, 1, SCHEMA).append(MIXED)
    assert ItemLog(store, 11, SCHEMA).load().records == []


def test_a_successor_writes_behind_what_it_found() -> None:
    store = MemoryStore()
    ItemLog(store, 0, SCHEMA).append([record("a/1", 0, 1)])
    second = ItemLog(store, 0, SCHEMA)
    second.load()
    second.append([record("a/1", 1, 1)])
    assert [found.start for _, found, _ in ItemLog(store, 0, SCHEMA).load().records] == [0, 1]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_torn_newest_object_is_dropped_for_good(share: float) -> None:
    inner = MemoryStore()
    log = ItemLog(FaultyStore(inner, {1: Tear(share)}), 0, SCHEMA)
    log.append([record("a/1", 0, 5)])
    with pytest.raises(Crash):
        log.append([record("a/1", 5, 5)])
    loaded = ItemLog(inner, 0, SCHEMA).load()
    assert [found.start for _, found, _ in loaded.records] == [0]
    assert len(loaded.torn) == 1 and loaded.damaged == []
    again = ItemLog(inner, 0, SCHEMA)
    assert again.load().torn == []
    again.append([record("a/1", 5, 5)])
    assert ItemLog(inner, 0, SCHEMA).load().damaged == []


def test_an_append_that_failed_is_replaced_by_the_next() -> None:
    inner = MemoryStore()
    log = ItemLog(FaultyStore(inner, {0: Tear(0.5)}), 0, SCHEMA)
    with pytest.raises(StoreError):
        log.append(MIXED[:2])
    log.append(MIXED)
    loaded = ItemLog(inner, 0, SCHEMA).load()
    assert contents(loaded) == as_contents(MIXED)
    assert (loaded.torn, loaded.damaged) == ([], [])


def test_a_damaged_older_object_is_reported_and_kept() -> None:
    store = MemoryStore()
    log = ItemLog(store, 0, SCHEMA)
    first, second = log.append([record("a/1", 0, 5)])[0], log.append([record("a/1", 5, 5)])[0]
    store.objects[first] = store.objects[first][:-30]
    for _ in range(2):
        loaded = ItemLog(store, 0, SCHEMA).load()
        assert (loaded.torn, loaded.damaged) == ([], [first])
        assert [name for name, _, _ in loaded.records] == [second]


def test_items_of_another_schema_are_refused() -> None:
    store = MemoryStore()
    ItemLog(store, 0, SCHEMA).append(MIXED)
    with pytest.raises(SchemaMismatch):
        ItemLog(store, 0, pa.schema([("n", pa.int32())])).load()


def test_a_large_group_becomes_several_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itemlog, "OBJECT_BYTES", 100)
    store = MemoryStore()
    names = ItemLog(store, 0, SCHEMA).append(MIXED)
    assert len(set(names)) > 1
    assert contents(ItemLog(store, 0, SCHEMA).load()) == as_contents(MIXED)


def test_dictionaries_survive() -> None:
    schema = pa.schema([("d", pa.dictionary(pa.int32(), pa.string()))])
    store = MemoryStore()
    batches = [
        pa.record_batch([pa.array(values).dictionary_encode()], schema=schema) for values in (["x", "y"], ["z", "x"])
    ]
    ItemLog(store, 0, schema).append([LaneItems("a/1", 2 * n, 2, batch) for n, batch in enumerate(batches)])
    loaded = ItemLog(store, 0, schema).load()
    assert [found.batch.to_pydict()["d"] for _, found, _ in loaded.records if found.batch] == [["x", "y"], ["z", "x"]]


def test_a_log_that_was_taken_over_appends_nothing_any_more() -> None:
    store = MemoryStore()
    old, new = ItemLog(store, 0, SCHEMA), ItemLog(store, 0, SCHEMA)
    old.load()
    old.append([record("a/1", 0, 1)])
    assert len(new.load().records) == 1
    with pytest.raises(Replaced) as caught:
        old.append([record("a/1", 1, 1)])
    assert caught.value.lane == 0
    new.append([record("a/1", 1, 2)])
    assert [found.start for _, found, _ in ItemLog(store, 0, SCHEMA).load().records] == [0, 1]
    assert len(store.list("reign-00000")) == 1


def test_whatever_a_log_may_acknowledge_is_seen_by_its_successor() -> None:
    """The successor begins at every moment of an append."""
    loads: list[LoadedLog] = []

    class Interrupted(MemoryStore):
        moment = -1

        def _pass(self) -> None:
            self.moment -= 1
            if self.moment == 0:
                loads.append(ItemLog(self, 0, SCHEMA).load())

        def put(self, name: str, data: bytes) -> None:
            self._pass()
            super().put(name, data)
            self._pass()

        def list(self, prefix: str) -> Names:
            self._pass()
            try:
                return super().list(prefix)
            finally:
                self._pass()

    outcomes = []
    for moment in range(1, 6):
        loads.clear()
        store = Interrupted()
        log = ItemLog(store, 0, SCHEMA)
        log.load()
        store.moment = moment
        try:
            log.append([record("a/1", 0, 1)])
            acknowledged = True
        except Replaced:
            acknowledged = False
        seen = any(loaded.records for loaded in loads)
        assert seen or not (loads and acknowledged)
        outcomes.append((acknowledged, seen))
    assert outcomes == [(False, False), (False, True), (False, True), (True, True), (True, False)]
