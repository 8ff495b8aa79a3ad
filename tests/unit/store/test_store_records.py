"""Commit records, epochs and what may be deleted."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from afspark.errors import AnotherDriver, CheckpointError, StoreError, StoreNotWritable, UsageError
from afspark.store import (
    CommitRecord,
    ObjectRef,
    OperatorRecord,
    RecordLog,
    Store,
    WorkerRecord,
    object_name,
    open_store,
    seal,
)
from afspark.store.base import Names
from afspark.store.local import LocalStore
from afspark.store.naming import EpochId, parse_object_name


class CountingStore(LocalStore):
    """Counts requests, and can pretend not to have seen other drivers yet."""

    requests: dict[str, int]
    stale: list[Names]

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.requests = {"put": 0, "get": 0, "has": 0, "list": 0, "delete": 0}
        self.stale = []

    def put(self, name: str, data: bytes) -> None:
        self.requests["put"] += 1
        super().put(name, data)

    def get(self, name: str) -> bytes:
        self.requests["get"] += 1
        return super().get(name)

    def has(self, name: str) -> bool:
        self.requests["has"] += 1
        return super().has(name)

    def list(self, prefix: str) -> Names:
        self.requests["list"] += 1
        return self.stale.pop(0) if self.stale else super().list(prefix)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(str(tmp_path))


def _put(store: Store, name: str, *, full: bool = False) -> ObjectRef:
    data = seal({"name": name}, {})
    store.put(name, data)
    return ObjectRef.of(name, data, cells=1, full=full)


def _record(log: RecordLog, batch: int, *refs: ObjectRef, incarnation: int = 0, who: str = "") -> CommitRecord:
    worker = WorkerRecord(0, incarnation, 0, batch + 1, who, {"counts": 2.5}, tuple(refs))
    return CommitRecord(batch, log.epoch, {"count": OperatorRecord(workers=(worker,))})


def _who(record: CommitRecord | None) -> str:
    """Who has written a record."""
    assert record is not None
    return record.operators["count"].workers[0].host


def _record_names(store: Store) -> list[str]:
    return [name for name in store.list("epochs") if "/records/" in name]


def _reopened(store: Store, upto: int) -> tuple[RecordLog, CommitRecord | None]:
    log = RecordLog(store)
    return log, log.open_epoch(upto)


def test_a_record_of_a_batch_that_runs_again_is_ignored_for_good(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    for batch in range(4):
        log.write(_record(log, batch))
    second, found = _reopened(store, 2)
    assert found is not None and found.batch == 2
    # The second driver dies before it commits anything: record 3 of the first must not come back.
    _, found = _reopened(store, 3)
    assert found is not None and found.batch == 2
    assert second.newest(1) == _record_of(log, 1)
    assert second.newest(-1) is None


def _record_of(log: RecordLog, batch: int) -> CommitRecord | None:
    return log.newest(batch)


def test_an_older_driver_is_never_read(store: CountingStore) -> None:
    old, _ = _reopened(store, -1)
    old.write(_record(old, 0, who="old"))
    new, base = _reopened(store, 0)
    assert _who(base) == "old"
    for batch in (0, 1, 2, 3):
        name = object_name(old.epoch, "count", 0, 0, batch, 1)
        with pytest.raises(AnotherDriver):
            old.write(_record(old, batch, _put(store, name), who="zombie"))
    new.write(_record(new, 1, who="new"))
    assert new.newest() == _record(new, 1, who="new")
    for upto, who in ((3, "new"), (1, "new")):
        _, found = _reopened(store, upto)
        assert _who(found) == who
    again = RecordLog(store)
    found = again.open_epoch(0)
    assert _who(found) == "old"
    with pytest.raises(AnotherDriver):
        old.write(_record(old, 9, who="zombie"))
    swept = again.sweep()
    assert object_name(old.epoch, "count", 0, 0, 3, 1) in swept
    assert all("zombie" not in str(store.get(name)) for name in _record_names(store))


def test_an_older_driver_is_told_and_may_not_delete(store: CountingStore) -> None:
    old, _ = _reopened(store, -1)
    for batch in range(6):
        old.write(_record(old, batch))
    idle, _ = _reopened(store, 5)
    new, _ = _reopened(store, 5)
    new.refuse_if_superseded()
    before = store.list("")
    for log in (old, idle):
        for act in (log.refuse_if_superseded, log.sweep, lambda log=log: log.prune(keep=2, slack=0)):
            with pytest.raises(AnotherDriver) as caught:
                act()
            assert (caught.value.expected, caught.value.found) == (log.epoch, new.epoch)
    assert store.list("") == before


def test_every_record_of_an_older_driver_is_refused_before_its_batch_is_committed(store: CountingStore) -> None:
    """Not only the first one: a driver may be replaced at any time."""
    old, _ = _reopened(store, -1)
    old.write(_record(old, 0))
    old.write(_record(old, 1))
    new, _ = _reopened(store, 1)
    with pytest.raises(AnotherDriver) as caught:
        old.write(_record(old, 2))
    assert (caught.value.host, caught.value.process) == (socket.gethostname(), os.getpid())
    assert str(os.getpid()) in caught.value.message
    new.write(_record(new, 2))


def test_a_driver_reads_the_history_after_it_was_announced(store: CountingStore) -> None:
    """A record whose driver saw no newer epoch may be committed any time later, so the next driver must know it."""
    old, _ = _reopened(store, -1)
    old.write(_record(old, 0))

    class Overtaken(LocalStore):
        """Another record comes just before this driver is announced."""

        def put(self, name: str, data: bytes) -> None:
            if name.endswith("/driver"):
                old.write(_record(old, 1))
            super().put(name, data)

    found = RecordLog(Overtaken(store.path)).open_epoch(1)
    assert found is not None and found.batch == 1


def test_drivers_opening_at_once_get_different_epochs(store: CountingStore) -> None:
    first, _ = _reopened(store, -1)
    store.stale = [[]]
    second, _ = _reopened(store, -1)
    numbers = [int(epoch.split("-")[0]) for epoch in {name.split("/")[1] for name in store.list("epochs")}]
    assert sorted(numbers) == [1, 1, 2], "the second saw nothing, took number 1 too, then noticed and moved on"
    assert second.epoch.startswith("00000002-")
    with pytest.raises(CheckpointError):
        first.write(_record(first, 0))
    second.write(_record(second, 0))


def test_two_epochs_of_one_number_are_ordered_by_their_tokens(store: CountingStore) -> None:
    logs = []
    for _ in range(2):
        store.stale = [[], [], [], []]
        log, _ = _reopened(store, -1)
        logs.append(log)
    low, high = sorted(logs, key=lambda log: log.epoch)
    assert low.epoch.split("-")[0] == high.epoch.split("-")[0]
    high.write(_record(high, 0, who="high"))
    with pytest.raises(CheckpointError):
        low.write(_record(low, 0, who="low"))
    _, found = _reopened(store, 0)
    assert _who(found) == "high"


def test_opening_gives_up_when_others_never_stop(store: CountingStore) -> None:
    class Crowded(LocalStore):
        def put(self, name: str, data: bytes) -> None:
            super().put(name, data)
            super().put(f"epochs/{EpochId.after(0)}/start", b"another driver")

    with pytest.raises(CheckpointError):
        RecordLog(Crowded(store.path)).open_epoch(0)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "emptied", "swapped"])
def test_damaged_newest_record(store: CountingStore, damage: str) -> None:
    log, _ = _reopened(store, -1)
    for batch in range(3):
        log.write(_record(log, batch))
    names = _record_names(store)
    data = store.get(names[2])
    damaged = {
        "truncated": data[:-3],
        "flipped": data[:50] + bytes([data[50] ^ 1]) + data[51:],
        "emptied": b"",
        "swapped": store.get(names[0]),
    }
    store.put(names[2], damaged[damage])
    again, found = _reopened(store, 2)
    assert found is not None and found.batch == 1
    assert [item.name for item in again.damaged] == [names[2]]
    assert again.damaged[0].reason == ("foreign" if damage == "swapped" else "corrupt")


def test_a_lost_base_record_is_reported(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    for batch in range(3):
        log.write(_record(log, batch))
    _reopened(store, 2)
    lost = _record_names(store)[-1]
    store.delete([lost])
    again, found = _reopened(store, 2)
    assert found is not None and found.batch == 1
    assert [(item.name, item.reason) for item in again.damaged] == [(lost, "missing")]


def test_a_damaged_start_is_made_good_by_the_records(store: CountingStore) -> None:
    first, _ = _reopened(store, -1)
    first.write(_record(first, 0, who="first"))
    second, _ = _reopened(store, 0)
    second.write(_record(second, 1, who="second"))
    with pytest.raises(AnotherDriver):
        first.write(_record(first, 1, who="zombie"))
    start = f"epochs/{second.epoch}/start"
    store.put(start, store.get(start)[:-1])
    again, found = _reopened(store, 1)
    assert _who(found) == "second"
    assert [item.name for item in again.damaged] == [start]
    assert again.newest(0) == first.newest(0)


def test_a_start_torn_by_a_crash_is_passed_over(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    log.write(_record(log, 0))
    crashed = EpochId.after(1)
    store.put(f"epochs/{crashed}/start", b"half")
    again, found = _reopened(store, 0)
    assert found == log.newest()
    assert again.epoch > str(crashed)
    again.sweep()
    assert f"epochs/{crashed}/start" not in store.list("epochs")


def test_an_unreachable_store_is_not_damage(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    log.write(_record(log, 0))

    class Unreachable(LocalStore):
        def get(self, name: str) -> bytes:
            raise StoreError("no route to host")

    with pytest.raises(StoreError):
        RecordLog(Unreachable(store.path)).open_epoch(0)


def test_a_failed_write_may_be_repeated(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log, _ = _reopened(store, -1)
    log.write(_record(log, 0))
    real = LocalStore.put

    def torn(self: LocalStore, name: str, data: bytes) -> None:
        real(self, name, data[: len(data) // 2])
        raise StoreNotWritable("disk full", path=self.path)

    monkeypatch.setattr(LocalStore, "put", torn)
    with pytest.raises(StoreNotWritable):
        log.write(_record(log, 1, who="torn"))
    assert log.newest() == _record(log, 0)
    monkeypatch.undo()
    log.write(_record(log, 1, who="first"))
    log.write(_record(log, 1, who="second"))
    again, found = _reopened(store, 1)
    assert _who(found) == "second"
    assert again.damaged == []


def test_records_must_continue_the_epoch(store: CountingStore) -> None:
    log = RecordLog(store)
    with pytest.raises(UsageError):
        _ = log.epoch
    log.open_epoch(-1)
    log.write(_record(log, 4))
    for wrong in (
        _record(log, 3),
        CommitRecord(5, "00000009-0123456789abcdef", {}),
        CommitRecord(-1, log.epoch, {}),
    ):
        with pytest.raises(UsageError):
            log.write(wrong)


def test_a_batch_costs_a_request_and_a_look(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    log.write(_record(log, 0))
    log.refuse_if_superseded()
    before = dict(store.requests)
    for batch in range(1, 16):
        log.write(_record(log, batch))
        log.newest(batch - 1)
        log.prune()
    after = {kind: store.requests[kind] - before[kind] for kind in before}
    assert after == {"put": 15, "get": 0, "has": 15, "list": 0, "delete": 0}
    log.write(_record(log, 16))
    assert log.prune() and len(_record_names(store)) == 8


def test_prune_keeps_what_kept_records_name(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    refs = [_put(store, object_name(log.epoch, "count", 0, 0, batch, 0), full=batch % 3 == 0) for batch in range(9)]
    for batch in range(9):
        full = batch - batch % 3
        worker = WorkerRecord(
            0, 0, 0, batch, "host", {}, tuple(refs[full : batch + 1]), tuple(refs[max(0, full - 3) : full])
        )
        log.write(CommitRecord(batch, log.epoch, {"count": OperatorRecord(workers=(worker,))}))
    deleted = log.prune(keep=2, slack=0)
    # Records 7 and 8 remain: chain from the full image 6, previous chain 3 to 5.
    assert store.list("objects") == [ref.name for ref in refs[3:]]
    assert len(deleted) == 7 + 3
    assert _reopened(store, 7)[1] == log.newest(7)


def test_what_somebody_reads_is_deleted_when_nobody_does_any_more(store: CountingStore) -> None:
    log = RecordLog(store)
    log.open_epoch(-1)
    refs = [_put(store, object_name(log.epoch, "count", 0, 0, batch, 0), full=True) for batch in range(6)]
    records = [_record(log, batch, ref) for batch, ref in enumerate(refs)]
    for record in records[:3]:
        log.write(record)
    with log.pinned(records[0]):
        for record in records[3:5]:
            log.write(record)
            log.prune(keep=2, slack=0)
        assert store.has(refs[0].name) and not store.has(refs[1].name)
    log.write(records[5])
    log.prune(keep=2, slack=0)
    assert [store.has(ref.name) for ref in refs] == [False] * 4 + [True] * 2


def test_prune_removes_replaced_attempts(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    for batch in (0, 1, 1, 1, 2, 3):
        log.write(_record(log, batch))
    log.prune(keep=2, slack=0)
    assert len(_record_names(store)) == 2


@pytest.mark.parametrize(("keep", "slack"), [(1, 0), (0, 8), (8, -1)])
def test_prune_refuses_to_keep_too_little(store: CountingStore, keep: int, slack: int) -> None:
    log, _ = _reopened(store, -1)
    with pytest.raises(UsageError):
        log.prune(keep=keep, slack=slack)


def test_pruning_goes_on_over_epochs(store: CountingStore) -> None:
    batch = 0
    for _ in range(4):
        log, _ = _reopened(store, batch - 1)
        for _ in range(3):
            log.write(_record(log, batch, _put(store, object_name(log.epoch, "count", 0, 0, batch, 0))))
            batch += 1
        log.prune(keep=4, slack=0)
    assert len(_record_names(store)) == 4
    assert len(store.list("objects")) == 4
    again, found = _reopened(store, batch - 1)
    assert found is not None and found.batch == batch - 1 and again.damaged == []


def test_sweep_removes_orphans_only(store: CountingStore) -> None:
    old, _ = _reopened(store, -1)
    named = _put(store, object_name(old.epoch, "count", 0, 0, 0, 0))
    orphan = _put(store, object_name(old.epoch, "count", 0, 0, 1, 0))
    old.write(_record(old, 0, named))
    log, _ = _reopened(store, 0)
    in_flight = _put(store, object_name(log.epoch, "count", 0, 1, 1, 0))
    dead = _put(store, object_name(log.epoch, "count", 0, 0, 1, 0))
    other = _put(store, object_name(log.epoch, "other", 0, 0, 1, 0))
    store.put("objects/unknown", b"not ours to judge")
    log.write(_record(log, 1, named, incarnation=1))
    swept = log.sweep()
    assert set(swept) == {orphan.name, dead.name, f"epochs/{old.epoch}/driver", f"epochs/{old.epoch}/start"}
    assert set(store.list("objects")) == {named.name, in_flight.name, other.name, "objects/unknown"}
    assert _reopened(store, 1)[1] == log.newest()


def test_sweep_deletes_nothing_when_no_record_could_be_read(store: CountingStore) -> None:
    log, _ = _reopened(store, -1)
    ref = _put(store, object_name(log.epoch, "count", 0, 0, 0, 0))
    log.write(_record(log, 0, ref))
    store.put(_record_names(store)[0], b"rotten")
    again, found = _reopened(store, 0)
    assert found is None and again.damaged
    assert again.sweep() == []
    assert store.list("objects") == [ref.name]


def test_the_past_survives_a_swept_and_then_damaged_epoch(store: CountingStore) -> None:
    first, _ = _reopened(store, -1)
    first.write(_record(first, 0))
    second, _ = _reopened(store, 0)
    second.sweep()
    store.put(f"epochs/{second.epoch}/start", b"rotten")
    assert _reopened(store, 0)[1] == first.newest()


def test_object_names() -> None:
    epoch = str(EpochId.after(4))
    seen = set()
    for operator in ("count", "a/b", "..", ".", "ü %2F", "a%2Fb"):
        for rest in (
            (0, 0, 0, 0),
            (1, 0, 0, 0),
            (0, 1, 0, 0),
            (0, 0, 1, 0),
            (0, 0, 0, 1),
            (0, 0, 0, 0, 1),
            (10**6, 10**6, 10**13, 10**5, 10**4),
        ):
            name = object_name(epoch, operator, *rest)
            origin = parse_object_name(name)
            assert origin is not None
            assert (origin.epoch, origin.operator) == (epoch, operator)
            found = (origin.worker, origin.incarnation, origin.batch, origin.attempt, origin.number)
            assert found == (*rest, 0)[:5]
            seen.add(name)
    assert len(seen) == 42
    assert all(name.count("/") == 3 and "/../" not in name and "/./" not in name for name in seen)


@pytest.mark.parametrize("name", ["objects/x", "objects/1-2/c/0-0-0-0", "ledger/a", "objects/00000001-zz/c/0"])
def test_foreign_object_names_are_not_parsed(name: str) -> None:
    assert parse_object_name(name) is None


def test_object_names_are_checked() -> None:
    for arguments in (("bad", "c", 0, 0, 0, 0), (str(EpochId.after(0)), "", 0, 0, 0, 0)):
        with pytest.raises(UsageError):
            object_name(*arguments)
    with pytest.raises(UsageError):
        object_name(str(EpochId.after(0)), "c", 0, -1, 0, 0)


def test_epochs_sort_by_number_then_token() -> None:
    assert EpochId(2, "0" * 16) > EpochId(1, "f" * 16)
    assert EpochId(2, "1" * 16) > EpochId(2, "0" * 16)
    assert EpochId.after(3) != EpochId.after(3)
    assert EpochId.parse("1-x") is None


def test_open_store_logs_work_too(tmp_path: Path) -> None:
    log, _ = _reopened(open_store(tmp_path).below("query"), -1)
    log.write(_record(log, 0))
    assert _reopened(open_store(tmp_path / "query"), 0)[1] == log.newest()
