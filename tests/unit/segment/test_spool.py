"""Backups on their way to the store: processes are killed in an upload, and nothing is lost or half there."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from afspark.cluster.local.processes import KILLED, answer, begin
from afspark.errors import SegmentBusy, StoreNotWritable
from afspark.numbers import Batch, Incarnation
from afspark.resident import Segment
from afspark.resident.spool import Spooled, Uploads, next_spooled, upload
from afspark.store.base import not_writable
from afspark.store.local import LocalStore
from afspark.store.naming import object_name
from tests.unit.runtime.sparkless import die

DATA = os.urandom(300_000)


class InterruptedStore(LocalStore):
    """Something happens before, or instead of, the put of one object."""

    interrupts: str = ""
    what: Callable[[], None] = staticmethod(lambda: None)

    def put(self, name: str, data: bytes) -> None:
        if name == self.interrupts:
            self.what()
        super().put(name, data)


def store_at(path: Path, interrupts: str = "", what: Callable[[], None] = lambda: None) -> InterruptedStore:
    path.mkdir(parents=True, exist_ok=True)
    store = InterruptedStore(str(path))
    store.interrupts, store.what = interrupts, what
    return store


def spool(segment: Segment, batch: int, *names: str, data: bytes = DATA) -> None:
    """Applies a batch that leaves backups in the spool."""
    with segment.lock(1.0):
        segment.begin(batch, covered=-1)
        for name in names:
            segment.spool(batch, name, data)
        segment.finish(batch, b"report", covered=-1)


@pytest.mark.parametrize("name", ["objects/a b", "objects/x-1-2", "é/ü", "objects/%2E"])
def test_names_come_back(name: str) -> None:
    one = Spooled(12, 3, name)
    assert Spooled.parse(one.file) == one and "/" not in one.file


@pytest.mark.parametrize("operator", ["数" * 16, "слова " * 4, "a" * 150])
def test_operators_may_have_long_names(segment: Segment, tmp_path: Path, operator: str) -> None:
    name = object_name("00000001-0123456789abcdef", operator, 0, Incarnation(0), Batch(10**9), 0)
    spool(segment, 0, name)
    store = store_at(tmp_path / "store")
    upload(segment.directory, store)
    assert store.get(name) == DATA


@pytest.mark.parametrize("file", ["report-3.", "out-3-rows", "note", "uploading", "spool-3-0-a.tmp"])
def test_other_files_are_none_of_it(file: str) -> None:
    assert Spooled.parse(file) is None


def test_they_are_in_the_order_they_were_made() -> None:
    made: list[Spooled] = []
    for batch in (9, 9, 10, 10, 11):
        made.append(next_spooled(made, batch, f"objects/{-len(made)}"))
    assert sorted(made) == made and [one.index for one in made] == [0, 1, 0, 1, 0]


def test_all_is_uploaded_oldest_first(segment: Segment, tmp_path: Path) -> None:
    spool(segment, 0, "objects/b", "objects/a")
    spool(segment, 1, "objects/0")
    assert segment.spooled() == ("objects/b", "objects/a", "objects/0")
    put: list[str] = []

    class Noting(LocalStore):
        def put(self, name: str, data: bytes) -> None:
            put.append(name)
            super().put(name, data)

    store_at(tmp_path / "store")
    store = Noting(str(tmp_path / "store"))
    upload(segment.directory, store)
    assert put == ["objects/b", "objects/a", "objects/0"]
    assert all(store.get(name) == DATA for name in put)
    assert segment.spooled() == ()


@pytest.mark.parametrize("part", [0, len(DATA) // 2, len(DATA)], ids=["before", "within", "after"])
def test_a_process_killed_in_an_upload(segment: Segment, tmp_path: Path, part: int) -> None:
    """The next one takes over what was under way, and what waited behind it."""
    spool(segment, 0, "objects/0", "objects/1", "objects/2")
    dying = store_at(tmp_path / "store", "objects/1", die)
    if part:
        dying.put = put_and_die(dying, part)  # type: ignore[method-assign]
    ended, why = answer(begin(lambda: upload(segment.directory, dying)))
    assert (ended, why) == (False, KILLED)
    assert segment.spooled() == ("objects/1", "objects/2")
    store = store_at(tmp_path / "store")
    upload(segment.directory, store)
    assert segment.spooled() == ()
    assert [store.get(f"objects/{number}") for number in range(3)] == [DATA] * 3


def put_and_die(store: LocalStore, part: int) -> Callable[[str, bytes], None]:
    """Writes so much of one object, and dies."""

    def put(name: str, data: bytes) -> None:
        LocalStore.put(store, name, data[:part] if name == "objects/1" else data)
        if name == "objects/1":
            die()

    return put


def test_a_process_killed_while_it_spools(segment: Segment) -> None:
    """A file that was not finished is no backup; the batch is begun again."""

    def spool_and_die() -> None:
        again = Segment.open(segment.directory)
        assert again is not None
        with again.lock(1.0):
            again.begin(0, covered=-1)
            again.spool(0, "objects/0", DATA)
            die()

    assert answer(begin(spool_and_die)) == (False, KILLED)
    assert segment.marked and segment.spooled() == ("objects/0",)
    with segment.lock(1.0):
        segment.clear_mark()
        segment.begin(0, covered=-1)
        assert segment.spooled() == ()


def test_a_batch_taken_back_drops_its_backups_alone(segment: Segment) -> None:
    spool(segment, 0, "objects/0")
    spool(segment, 1, "objects/1", "objects/more")
    with segment.lock(1.0):
        segment.step_back(1)
        segment.clear_mark()
        segment.begin(1, covered=-1)
        assert segment.spooled() == ("objects/0",)
        segment.spool(1, "objects/other", b"other")
        segment.finish(1, b"report", covered=-1)
    assert segment.spooled() == ("objects/0", "objects/other")


def test_a_batch_taken_back_during_its_upload(segment: Segment, tmp_path: Path) -> None:
    """What comes to the store is an object that nobody names; the uploader goes on."""
    spool(segment, 0, "objects/0", "objects/1")

    def take_back() -> None:
        with segment.lock(1.0):
            segment.step_back(0)
            segment.clear_mark()
            segment.begin(0, covered=-1)
            segment.spool(0, "objects/new", b"new")

    store = store_at(tmp_path / "store", "objects/0", take_back)
    upload(segment.directory, store)
    assert segment.spooled() == ("objects/new",)
    upload(segment.directory, store)
    assert segment.spooled() == () and store.get("objects/new") == b"new"


def test_two_processes_never_upload_at_once(segment: Segment, tmp_path: Path) -> None:
    """The second one comes while the first is at it, waits for its end, and finds nothing left to do."""
    spool(segment, 0, "objects/0", "objects/1")
    context = get_context("fork")
    inside, waiting, go_on = context.Event(), context.Event(), context.Event()
    puts = tmp_path / "puts"

    def uploading(who: str, hold: bool) -> None:
        def note() -> None:
            with puts.open("a") as file:
                file.write(f"{who}\n")
            if hold:
                inside.set()
                assert go_on.wait(60)

        if not hold:
            waiting.set()
        upload(segment.directory, store_at(tmp_path / "store", "objects/0", note))

    first = begin(lambda: uploading("first", True))
    assert inside.wait(60)
    second = begin(lambda: uploading("second", False))
    assert waiting.wait(60)
    assert puts.read_text().split() == ["first"]
    go_on.set()
    assert answer(first)[0] and answer(second)[0]
    assert puts.read_text().split() == ["first"]
    assert segment.spooled() == ()


def test_a_thread_takes_up_what_is_spooled_while_it_uploads(segment: Segment, tmp_path: Path) -> None:
    spool(segment, 0, "objects/0")
    uploads, reached, go_on = Uploads(), threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert go_on.wait(60)

    store = store_at(tmp_path / "store", "objects/0", hold)
    uploads.start(segment.directory, store)
    assert reached.wait(60)
    (thread,) = uploads._running.values()
    spool(segment, 1, "objects/1")
    uploads.start(segment.directory, store)
    assert list(uploads._running.values()) == [thread], "one thread for each folder"
    go_on.set()
    thread.join(60)
    assert segment.spooled() == () and store.get("objects/1") == DATA
    assert not uploads._running


def test_a_store_that_refuses_keeps_what_waits(segment: Segment, tmp_path: Path) -> None:
    spool(segment, 0, "objects/0", "objects/1")
    refused: list[Any] = []

    def refuse() -> None:
        refused.append(None)
        raise not_writable(str(tmp_path), "out of order")

    store = store_at(tmp_path / "store", "objects/1", refuse)
    with pytest.raises(StoreNotWritable):
        upload(segment.directory, store)
    assert segment.spooled() == ("objects/1",)
    uploads = Uploads()
    uploads.start(segment.directory, store)
    for thread in list(uploads._running.values()):
        thread.join(60)
    assert len(refused) == 2 and not uploads._running and segment.spooled() == ("objects/1",)
    store.interrupts = ""
    uploads.start(segment.directory, store)
    for thread in list(uploads._running.values()):
        thread.join(60)
    assert segment.spooled() == () and store.get("objects/1") == DATA


def test_a_segment_that_is_gone_is_nothing_to_upload(segment: Segment, tmp_path: Path) -> None:
    spool(segment, 0, "objects/0", "objects/1")
    store = store_at(tmp_path / "store", "objects/1", segment.destroy)
    upload(segment.directory, store)
    assert not segment.directory.exists(), "an upload does not bring it back"
    upload(segment.directory, store)


def test_a_process_that_is_stopped_in_an_upload_is_not_waited_for(segment: Segment, tmp_path: Path) -> None:
    """It may wake up and go on writing, so that nobody else writes the same; whoever needs it is told who it is."""
    spool(segment, 0, "objects/0", "objects/1")
    stopping = store_at(tmp_path / "store", "objects/1", lambda: os.kill(os.getpid(), signal.SIGSTOP))
    stopped = begin(lambda: upload(segment.directory, stopping))
    _, status = os.waitpid(stopped[0], os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    store = store_at(tmp_path / "store")
    with pytest.raises(SegmentBusy, match=f"Process {stopped[0]} .* is stopped") as caught:
        upload(segment.directory, store)
    assert f"kill -9 {stopped[0]}" in caught.value.remedy
    os.kill(stopped[0], signal.SIGCONT)
    upload(segment.directory, store)
    assert answer(stopped)[0] and segment.spooled() == ()
    assert [store.get(f"objects/{number}") for number in range(2)] == [DATA] * 2
