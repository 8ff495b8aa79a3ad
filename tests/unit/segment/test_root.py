from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from afspark.errors import SegmentBusy, SegmentError
from afspark.protocol.lifecycle import Identity
from afspark.resident import Segment, SegmentAddress, SegmentRoot, Survivor, process_cache
from afspark.resident import segment_root as root
from afspark.resident.segment_root import remove_states
from afspark.store import RecordLog, claim, identify, open_store
from afspark.store.checkpoint_place import settle_place
from afspark.store.lease import Lease

DAY = 86_400.0
HOUR = 3_600.0


@pytest.fixture
def house(tmp_path: Path) -> SegmentRoot:
    return SegmentRoot(tmp_path / "segments", "127.0.0.2")


def create(house: SegmentRoot, identity: Identity, incarnation: int = 0) -> Segment:
    place = house.directory(identity.query_id, identity.operator, identity.worker)
    return Segment.create(place, identity, incarnation)


def test_directory(house: SegmentRoot) -> None:
    assert house.directory("q", "count", 3) == house.base / "127.0.0.2" / "q" / "count-3"


@pytest.mark.parametrize("name", ["..", ".", ".dead-x", "a/b", "%2E", "ü:1"])
def test_names_never_leave_the_tree_nor_hide(house: SegmentRoot, identity: Identity, name: str) -> None:
    segment = create(house, replace(identity, query_id=name, operator=name))
    assert segment.directory.resolve().parent.parent == (house.base / "127.0.0.2").resolve()
    (survivor,) = house.survivors(name)
    assert survivor.operator == name


def test_hosts_do_not_see_each_other(house: SegmentRoot, identity: Identity) -> None:
    create(house, identity)
    other = SegmentRoot(house.base, "127.0.0.3")
    assert other.survivors("q") == []
    assert Segment.open(other.directory("q", "count", 0)) is None


def test_survivors_are_found(house: SegmentRoot, identity: Identity) -> None:
    second = create(house, replace(identity, worker=1), incarnation=2)
    first = create(house, identity)
    create(house, replace(identity, query_id="another"))
    with first.lock(1.0):
        first.begin(0)
        first.finish(0, b"")
        first.begin(1)
        assert [(found.worker, found.incarnation, found.version, found.marked) for found in house.survivors("q")] == [
            (0, 0, 0, True),
            (1, 2, -1, False),
        ]
    assert house.survivors("q")[1] == Survivor(
        operator="count",
        worker=1,
        workers=2,
        fingerprint="f",
        incarnation=2,
        version=-1,
        marked=False,
        host="127.0.0.2",
        directory=str(second.directory),
        kept_from=-1,
    )


def test_what_is_no_segment_is_no_survivor(house: SegmentRoot, identity: Identity) -> None:
    half = create(house, identity).directory
    (half / "meta.json").unlink()
    (half.parent / "file").touch()
    assert house.survivors("q") == []
    assert house.survivors("never seen") == []


def test_release(house: SegmentRoot, identity: Identity) -> None:
    create(house, identity)
    half = create(house, replace(identity, worker=1)).directory
    (half / "meta.json").unlink()
    kept = create(house, replace(identity, query_id="another"))
    assert house.release("q") == 1
    assert house.survivors("q") == []
    assert not half.parent.exists()
    assert kept.is_current()
    assert house.release("q") == 0


def test_release_waits_for_tasks_at_work(house: SegmentRoot, identity: Identity) -> None:
    segment = create(house, identity)
    with segment.lock(1.0), pytest.raises(SegmentBusy):
        house.release("q", timeout_seconds=0.05)
    assert segment.is_current()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """That of a query with the number in `query_of`."""
    place = tmp_path / "checkpoint"
    claim(open_store(place).below("afspark"), "f", {})
    return place


def query_of(checkpoint: Path, identity: Identity) -> Identity:
    found = identify(open_store(checkpoint).below("afspark"))
    assert found is not None
    return replace(identity, query_id=found.query_id, checkpoint=str(checkpoint))


def test_clean_keeps_whatever_has_its_checkpoint(house: SegmentRoot, identity: Identity, checkpoint: Path) -> None:
    """However long the query is idle."""
    segment = create(house, query_of(checkpoint, identity))
    assert house.clean(now=time.time() + 1_000 * DAY) == []
    assert segment.is_current()


def test_clean_removes_what_has_lost_its_checkpoint_for_long(
    house: SegmentRoot, identity: Identity, checkpoint: Path
) -> None:
    mine = query_of(checkpoint, identity)
    segment, other_host = create(house, mine), create(SegmentRoot(house.base, "127.0.0.3"), mine)
    start = time.time()
    shutil.rmtree(checkpoint)
    for days in (0, 2, 5, 8.9):
        assert house.clean(now=start + days * DAY) == []
    assert house.clean(now=start + 9.1 * DAY) == [segment.directory, other_host.directory]
    assert list(house.base.iterdir()) == []


@pytest.mark.parametrize("instead", ["nothing", "another query"])
def test_a_checkpoint_that_was_away_at_some_looks_is_there(
    house: SegmentRoot, identity: Identity, checkpoint: Path, instead: str
) -> None:
    """As on a mount that comes and goes."""
    segment = create(house, query_of(checkpoint, identity))
    start, away = time.time(), checkpoint.with_name("away")
    for days in range(2, 100, 6):
        checkpoint.rename(away)
        if instead == "another query":
            claim(open_store(checkpoint).below("afspark"), "g", {})
        assert house.clean(now=start + days * DAY) == []
        shutil.rmtree(checkpoint, ignore_errors=True)
        away.rename(checkpoint)
        assert house.clean(now=start + (days + 5) * DAY) == []
    assert segment.is_current()


def test_use_prolongs_life(
    house: SegmentRoot, identity: Identity, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = create(house, query_of(checkpoint, identity))
    shutil.rmtree(checkpoint)
    start = time.time()
    assert house.clean(now=start + 2 * DAY) == []
    monkeypatch.setattr(time, "time", lambda: start + 8 * DAY)
    with segment.lock(1.0):
        pass
    for days in (8.5, 9.5, 16):
        assert house.clean(now=start + days * DAY) == []
    assert house.clean(now=start + 17 * DAY) == [segment.directory]


def test_a_moved_checkpoint_is_looked_for_where_it_is(house: SegmentRoot, identity: Identity, checkpoint: Path) -> None:
    segment = create(house, query_of(checkpoint, identity))
    checkpoint.rename(checkpoint.with_name("moved"))
    address = SegmentAddress(segment.directory, str(checkpoint.with_name("moved")))
    segment.close()
    assert address.open() is not None
    process_cache().clear()
    start = time.time()
    for days in (2, 10, 20):
        assert house.clean(now=start + days * DAY) == []


def test_clean_keeps_what_cannot_be_judged_from_here(house: SegmentRoot, identity: Identity, tmp_path: Path) -> None:
    create(house, replace(identity, checkpoint="s3://bucket/checkpoint"))
    create(house, replace(identity, worker=1, checkpoint=str(tmp_path / "never seen here")))
    newer = create(house, replace(identity, worker=2)).directory
    meta = json.loads((newer / "meta.json").read_text())
    meta["identity"]["format_version"] += 1
    (newer / "meta.json").write_text(json.dumps(meta))
    long_ago = time.time() - 100 * DAY
    os.utime(newer, (long_ago, long_ago))
    for days in (2, 100, 200):
        assert house.clean(now=time.time() + days * DAY) == []
    assert len(list(newer.parent.iterdir())) == 3


def test_clean_never_touches_a_locked_segment(house: SegmentRoot, identity: Identity, checkpoint: Path) -> None:
    segment = create(house, query_of(checkpoint, identity))
    shutil.rmtree(checkpoint)
    now = time.time()
    assert house.clean(now=now + 2 * DAY) == []
    with segment.lock(1.0):
        assert house.clean(now=now + 10 * DAY) == []
    assert segment.is_current()


@pytest.fixture
def nobodys(checkpoint: Path) -> Path:
    """The checkpoint of a query that was started without one, by a process that was killed."""
    store = open_store(checkpoint)
    found = identify(store.below("afspark"))
    assert found is not None
    settle_place(store, str(checkpoint), found, temporary=True)
    killed = subprocess.run(
        [sys.executable, "-c", DRIVES_AND_DIES, str(checkpoint)], check=False, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert killed.returncode == -signal.SIGKILL
    return checkpoint


DRIVES_AND_DIES = """
import os, sys
from afspark.store import RecordLog, open_store
from afspark.store.lease import Lease

store = open_store(sys.argv[1]).below("afspark")
Lease(store, RecordLog(store)).take()
os.kill(os.getpid(), 9)
"""


def test_what_nobody_can_want_of_a_killed_driver_is_removed_after_an_hour(
    house: SegmentRoot, identity: Identity, nobodys: Path
) -> None:
    segment, start = create(house, query_of(nobodys, identity)), time.time()
    assert house.clean(now=start + 0.9 * HOUR) == []
    assert house.clean(now=start + 1.1 * HOUR) == [segment.directory]


def test_what_was_named_since_is_kept(house: SegmentRoot, identity: Identity, nobodys: Path) -> None:
    found = identify(open_store(nobodys).below("afspark"))
    assert found is not None and settle_place(open_store(nobodys), str(nobodys), found) == found
    segment = create(house, query_of(nobodys, identity))
    assert house.clean(now=time.time() + 100 * DAY) == [] and segment.is_current()


def test_what_a_living_driver_has_is_kept(house: SegmentRoot, identity: Identity, nobodys: Path) -> None:
    store = open_store(nobodys).below("afspark")
    lease = Lease(store, RecordLog(store))
    lease.take()
    lease.release()
    segment = create(house, query_of(nobodys, identity))
    assert house.clean(now=time.time() + DAY) == [] and segment.is_current()


def test_the_states_of_a_query_are_removed_on_all_hosts_unless_they_are_used(
    house: SegmentRoot, identity: Identity
) -> None:
    mine, other = create(house, identity), create(SegmentRoot(house.base, "127.0.0.3"), identity)
    stays = create(house, replace(identity, query_id="another"))
    with mine.lock(1.0):
        remove_states(house.base, "q")
    assert mine.is_current() and not other.directory.exists()
    remove_states(house.base, "q")
    assert not mine.directory.exists() and stays.is_current()


def test_clean_removes_leftovers(house: SegmentRoot, identity: Identity) -> None:
    segment = create(house, identity)
    query = segment.directory.parent
    for name in (".dead-count-1-ab", ".new-count-1-ab", ".new-fresh", "half"):
        (query / name).mkdir()
    long_ago = time.time() - DAY
    for name in (".new-count-1-ab", "half"):
        os.utime(query / name, (long_ago, long_ago))
    assert house.clean() == []
    assert sorted(path.name for path in query.iterdir()) == [".new-fresh", "count-0"]


def test_clean_of_an_empty_house(house: SegmentRoot) -> None:
    assert house.clean() == []


def test_base_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AFSPARK_SEGMENTS", str(tmp_path / "named"))
    assert SegmentRoot(None, "h").base == tmp_path / "named"
    assert SegmentRoot(tmp_path / "chosen", "h").base == tmp_path / "chosen"


def test_base_without_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AFSPARK_SEGMENTS", raising=False)
    monkeypatch.setattr(root, "_SHARED_MEMORY", tmp_path)
    assert SegmentRoot(None, "h").base == tmp_path / f"afspark-{os.geteuid()}"
    monkeypatch.setattr(root, "_SHARED_MEMORY", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    assert SegmentRoot(None, "h").base == tmp_path / "temporary" / f"afspark-{os.geteuid()}"


def test_base_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AFSPARK_SEGMENTS", raising=False)
    monkeypatch.setattr(root, "_SHARED_MEMORY", tmp_path)
    target = tmp_path / "theirs"
    target.mkdir()
    (tmp_path / f"afspark-{os.geteuid()}").symlink_to(target)
    with pytest.raises(SegmentError) as caught:
        SegmentRoot(None, "h")
    assert caught.value.remedy


def test_everything_is_for_its_owner_only(house: SegmentRoot, identity: Identity) -> None:
    before = os.umask(0)
    try:
        segment = create(house, identity)
        with segment.lock(1.0):
            segment.columns.open("a", "i8", 1)
            segment.begin(0)
            segment.keep(0, "port", b"x")
            segment.note("x")
            segment.finish(0, b"x")
    finally:
        os.umask(before)
    found = [house.base, *house.base.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()}
    assert len(files) == 6 and set(files.values()) == {0o600}
