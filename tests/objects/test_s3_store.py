"""The store on a real S3 server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from afspark.bench.object_server import ObjectServer, object_server
from afspark.errors import AnotherDriver, StoreAway, StoreNotWritable, StoreUnreachable
from afspark.sources.file_source import open_file, require_files
from afspark.store import RecordLog, Store, claim, open_store
from afspark.store.address_schemes import joined
from afspark.store.checkpoint_place import settle_place
from afspark.store.drivers import Driver, Notice
from afspark.store.epochs import epoch_claims
from afspark.store.naming import FOLDER
from afspark.store.outage import WaitingStore
from afspark.store.store_conformance import CHECKS, Check
from tests.objects.counting_line import CountingLine, counting_line

MARKER = "afspark/identity"


@pytest.fixture
def line(s3: ObjectServer) -> Iterator[CountingLine]:
    with counting_line(s3.endpoint) as made:
        yield made


def through(line: CountingLine, s3: ObjectServer, name: str) -> Store:
    return open_store(s3.address(f"line/{os.getpid()}/{name}", endpoint=line.endpoint))


def waiting(store: Store, seconds: float = 60.0) -> Store:
    store.put(MARKER, b"x")
    return WaitingStore(store, MARKER, seconds=seconds)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check: Check, address: str) -> None:
    check(open_store(address))


@pytest.mark.parametrize("scheme", ["s3a", "s3n"])
def test_other_names_of_the_scheme_mean_the_same_place(s3: ObjectServer, scheme: str) -> None:
    open_store(s3.address("schemes", scheme=scheme)).put(scheme, b"x")
    assert open_store(s3.address("schemes")).get(scheme) == b"x"


def test_a_copy_beside_the_original_gets_a_number_of_its_own(s3: ObjectServer, tmp_path: Path) -> None:
    """Although the address has parameters, of which only those are remembered that hold no keys."""

    def started(address: str) -> str:
        checkpoint = open_store(address)
        return settle_place(checkpoint, address, claim(checkpoint.below(FOLDER), "abc", {})).query_id

    first, second = (s3.address(f"places/{os.getpid()}/{tmp_path.name}/{name}") for name in ("first", "copy"))
    number = started(first)
    original, copy = open_store(first), open_store(second)
    for name in original.list(""):
        copy.put(name, original.get(name))
    own = started(second)
    assert own != number and started(second) == own and started(first) == number


def test_every_request_is_one_request(line: CountingLine, s3: ObjectServer, tmp_path: Path) -> None:
    store = through(line, s3, tmp_path.name)
    store.put("warm", b"x")
    line.taken()
    store.put("a/one", b"x" * 100_000)
    assert line.taken() == {"PUT": 1}, "no upload in parts for small objects"
    assert store.put_new("a/two", b"x") is True
    assert line.taken() == {"PUT": 1}
    assert store.has("a/one")
    assert line.taken() == {"HEAD": 1}
    assert store.get("a/one") == b"x" * 100_000
    assert line.taken() == {"HEAD": 1, "GET": 1}
    assert store.list("a") == ["a/one", "a/two"]
    assert line.taken() == {"LIST": 1}
    store.delete(["a/one", "a/two", "absent"])
    assert line.taken() == {"POST": 1}
    assert store.list("") == ["warm"], "and no empty folder is left"


def test_of_many_that_put_the_same_new_object_one_succeeds(address: str) -> None:
    store = open_store(address)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda number: store.put_new("turn", b"%d" % number), range(8)))
    assert made.count(True) == 1 and made.count(False) == 7
    assert store.get("turn") == b"%d" % made.index(True)
    assert store.put_new("turn", b"later") is False


def test_without_credentials_that_are_known_here_all_goes_through_pyarrow(
    s3: ObjectServer, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(address)
    monkeypatch.setattr("afspark.store.s3_store.find_credentials", lambda uri: None)
    assert store.put_new("turn", b"x") is None
    store.put("a", b"x")
    store.put("b", b"x")
    store.delete(["a", "b"])
    assert store.list("") == []


def test_a_server_that_knows_us_not_is_told_in_one_line(s3: ObjectServer) -> None:
    store = open_store(s3.address("x").replace(":secret@", ":other@"))
    with pytest.raises(StoreNotWritable) as refused:
        store.check_writable()
    assert "\n" not in str(refused.value) and "other" not in str(refused.value)
    assert store.put_new("turn", b"x") is None


def test_a_server_out_of_reach_is_waited_for(line: CountingLine, s3: ObjectServer, tmp_path: Path) -> None:
    inner = through(line, s3, tmp_path.name)
    store = waiting(inner)
    line.cut(True)
    with pytest.raises(StoreUnreachable):
        inner.put("a", b"x")
    threading.Timer(1.0, line.cut, [False]).start()
    for number in range(3):
        store.put(f"a/{number}", b"x")
    assert store.get("a/0") == b"x" and store.list("a") == ["a/0", "a/1", "a/2"] and store.has("a/1")
    store.delete(["a/0"])
    assert not store.has("a/0")


@pytest.mark.some(1)
@pytest.mark.parametrize("ask", ["put", "get", "has", "list", "delete", "put_new"])
def test_a_server_that_stays_out_of_reach_is_away(
    line: CountingLine, s3: ObjectServer, tmp_path: Path, ask: str
) -> None:
    store = waiting(through(line, s3, tmp_path.name), seconds=0.2)
    line.cut(True)
    given = {"put": ("a", b"x"), "put_new": ("a", b"x"), "delete": (["a", "b"],)}.get(ask, ("a",))
    with pytest.raises(StoreAway):
        getattr(store, ask)(*given)


def test_a_server_that_is_killed_and_comes_back_keeps_everything() -> None:
    with object_server() as own:
        store = waiting(open_store(own.address("killed")))
        done: list[int] = []

        def write() -> None:
            for number in range(200):
                store.put(f"a/{number:03d}", b"%d" % number)
                done.append(number)

        writing = threading.Thread(target=write)
        writing.start()
        while len(done) < 20:
            time.sleep(0.01)
        own.kill()
        before = len(done)
        own.start()
        writing.join(120)
        assert not writing.is_alive() and before < 200
        assert store.list("a") == [f"a/{number:03d}" for number in range(200)]
        assert all(store.get(f"a/{number:03d}") == b"%d" % number for number in range(0, 200, 7))


@pytest.mark.thorough
def test_a_server_that_hangs_for_a_while_is_waited_for() -> None:
    with object_server() as own:
        store = waiting(open_store(own.address("frozen")))
        own.freeze(frozen=True)
        threading.Timer(4.0, own.freeze, kwargs={"frozen": False}).start()
        store.put("a", b"x")
        assert store.get("a") == b"x"


def notice() -> Notice:
    return Notice(driver=Driver.here(), seconds=0.0)


def test_drivers_that_start_at_once_have_numbers_of_their_own(address: str) -> None:
    """They take turns, which S3 gives to one of them each; the highest one has the query, and the others see it."""
    logs = [RecordLog(open_store(address)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda log: log.announce(notice()), logs))
    numbers = [log.epoch_number for log in logs]
    assert len(set(numbers)) == 4
    last = max(logs, key=lambda log: log.epoch_number)
    last.open_epoch(-1)
    for log in logs:
        if log is not last:
            with pytest.raises(AnotherDriver):
                log.refuse_if_superseded()


def test_a_later_driver_is_seen_although_listings_are_late(
    address: str, s3: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only names are asked for: of this server's strict listings nothing is used."""
    first, second = RecordLog(open_store(address)), RecordLog(open_store(address))
    monkeypatch.setattr(type(open_store(address)), "list", lambda self, prefix: [])
    first.announce(notice())
    first.refuse_if_superseded()
    second.announce(notice())
    assert second.epoch_number == first.epoch_number + 1
    with pytest.raises(AnotherDriver):
        first.refuse_if_superseded()
    second.refuse_if_superseded()
    assert epoch_claims(open_store(address)).newest() is None, "the listing is late indeed"


def test_whether_a_driver_was_superseded_is_seen_without_a_listing(
    line: CountingLine, s3: ObjectServer, tmp_path: Path
) -> None:
    log = RecordLog(through(line, s3, tmp_path.name))
    log.announce(notice())
    for _ in range(3):
        log.refuse_if_superseded()
    line.taken()
    log.refuse_if_superseded()
    assert line.taken() == {"HEAD": 1}
    RecordLog(through(line, s3, tmp_path.name)).announce(notice())
    with pytest.raises(AnotherDriver):
        log.refuse_if_superseded()


@pytest.mark.parametrize("pattern", ["in", "in/*.txt"])
def test_input_is_found_at_an_address_that_says_where_the_server_is(address: str, pattern: str) -> None:
    open_store(address).put("in/a.txt", b"to be")
    (found,) = require_files(joined(address, pattern))
    assert found.path == joined(address, "in/a.txt")
    with open_file(found.path) as file:
        assert file.read() == b"to be"
