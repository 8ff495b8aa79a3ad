"""A store that stops to answer is away: nobody waits for it longer than he was told to, nor when he leaves."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from afspark.errors import ObjectMissing, StoreAway, StoreError
from afspark.store import ObjectRef, Store, claim, open_store
from afspark.store.asking import Request, answered
from afspark.store.identity import attached
from afspark.task.backup_writes import BackupWrites
from tests.unit.store.hanging import HangingStore

#: The least that a store is given.
LIMIT = 1.0


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[HangingStore]:
    store = HangingStore(str(tmp_path / "checkpoint"))
    claim(store.below("afspark"), "f", {})
    store.put("afspark/known", b"x")
    yield store
    store.gate.set()


def all_of_it(kind: str, name: str) -> bool:
    return True


def waited_for(ask: Callable[[], Any]) -> float:
    """How long somebody has waited in vain."""
    began = time.monotonic()
    with pytest.raises(StoreAway) as caught:
        ask()
    assert "\n" not in str(caught.value) and "does not answer" in str(caught.value)
    return time.monotonic() - began


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


REQUESTS: list[Callable[[Store], Any]] = [
    lambda store: store.put("afspark/new/object", b"y"),
    lambda store: store.get("afspark/known"),
    lambda store: store.has("afspark/known"),
    lambda store: store.list("afspark"),
    lambda store: store.delete(["afspark/known"]),
]


@pytest.mark.parametrize("ask", REQUESTS, ids=["put", "get", "has", "list", "delete"])
def test_a_mount_that_hangs_is_away(hanging: HangingStore, ask: Callable[[Store], Any]) -> None:
    store = attached(hanging, 0.1)
    hanging.hangs = all_of_it
    assert waited_for(partial(ask, store)) >= LIMIT
    begun = len(hanging.begun)
    for again in REQUESTS:
        waited_for(partial(again, store))
    waited_for(partial(ask, copy.copy(store)))
    assert len(hanging.begun) == begun, "only the first one waits in vain, and a copy is the same store"
    hanging.gate.set()
    until(lambda: len(hanging.late) == len(hanging.begun))
    time.sleep(0.1)
    assert store.has("afspark/identity"), "it is back"


def test_a_store_that_stutters_stops_nobody(hanging: HangingStore) -> None:
    store = attached(hanging, 0.1)
    hanging.hangs = all_of_it
    threading.Timer(0.5, hanging.gate.set).start()
    store.put("afspark/new", b"y")
    assert hanging.late and open_store(hanging.path).get("afspark/new") == b"y"
    with pytest.raises(ObjectMissing):
        store.get("afspark/unknown")


def test_a_read_takes_as_long_as_it_likes_while_the_store_answers_others(hanging: HangingStore) -> None:
    store = attached(hanging, 0.1)
    hanging.hangs = lambda kind, name: kind == "get"
    threading.Timer(2 * LIMIT, hanging.gate.set).start()
    assert store.get("afspark/known") == b"x"


def test_a_large_write_is_given_more_time(hanging: HangingStore) -> None:
    store = attached(hanging, 0.1)
    hanging.hangs = lambda kind, name: kind == "put"
    threading.Timer(LIMIT + 0.7, hanging.gate.set).start()
    store.put("afspark/large", bytes(1 << 20))
    assert len(store.get("afspark/large")) == 1 << 20


def test_what_was_given_up_replaces_nothing_and_deletes_nothing(hanging: HangingStore) -> None:
    old = attached(hanging, 0.1)
    hanging.hangs = lambda kind, name: kind == "put"
    waited_for(lambda: old.put("afspark/source/files/0001", b"what the first driver had found"))
    new = open_store(hanging.path)
    new.put("afspark/source/files/0001", b"what the next one has found")
    hanging.gate.set()
    until(lambda: len(hanging.late) == 1)
    assert new.get("afspark/source/files/0001") == b"what the next one has found"

    hanging.gate.clear()
    hanging.hangs = lambda kind, name: kind != "list"
    waited_for(lambda: attached(hanging, 0.1).delete(["afspark/known"]))
    hanging.gate.set()
    until(lambda: len(hanging.late) == len(hanging.begun))
    assert new.get("afspark/known") == b"x"


def test_whoever_waits_for_a_backup_hears_of_it(hanging: HangingStore) -> None:
    writes = BackupWrites(attached(hanging, 0.1))
    hanging.hangs = lambda kind, name: kind == "put"
    writes.begin(ObjectRef.of("one", b"data", cells=1, full=False), b"data")
    assert not writes.wait(0.0)
    waited_for(writes.wait)
    assert writes.durable == ()
    writes.leave()


def test_a_process_ends_although_a_request_hangs(hanging: HangingStore) -> None:
    script = f"""
import threading
from afspark.errors import StoreAway
from afspark.store.identity import attached
from tests.unit.store.hanging import HangingStore

store = HangingStore({hanging.path!r})
store.hangs = lambda kind, name: kind == "put"
try:
    attached(store, 0.1).put("afspark/new", b"y")
except StoreAway as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert "does not answer" in done.stdout and not done.stderr


def test_a_request_that_gets_on_is_waited_for() -> None:
    def slow() -> str:
        for _ in range(10):
            time.sleep(0.1)
            answered()
        return "done"

    request = Request(slow)
    assert request.wait(0.5) and request.result() == "done"


def test_a_request_that_is_given_up_stops_where_it_was() -> None:
    gate = threading.Event()
    went_on: list[int] = []

    def hang() -> None:
        gate.wait(20)
        answered()
        went_on.append(1)

    request = Request(hang)
    assert not request.wait(0.1)
    request.given_up = True
    gate.set()
    assert request.wait(20)
    with pytest.raises(StoreError):
        request.result()
    assert not went_on


def test_what_a_request_fails_with_is_raised_by_whoever_asked() -> None:
    request = Request(lambda: {}["a"])
    assert request.wait(20) and request.ended
    with pytest.raises(KeyError):
        request.result()
