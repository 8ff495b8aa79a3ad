"""Spark's part of a checkpoint, as it is copied and made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from afspark.coordinator.offsets import newest_of
from afspark.coordinator.spark_copies import SparkCopies, hand_to_spark
from afspark.errors import UsageError
from afspark.numbers import Batch
from afspark.store import open_store
from afspark.store.divided_store import DividedStore, GivenFiles, whole_checkpoint
from afspark.store.naming import FOLDER
from afspark.store.spark_files import BARE_COMMIT, PlannedBatch, PlannedBatches, files_of

EPOCH, LATER = "00000001-0123456789abcdef", "00000002-0123456789abcdef"


def planned(offsets: str, *, before: str | None = None, commit: str | None = None, **sources: str) -> PlannedBatch:
    return PlannedBatch("id", offsets, before, commit, {f"sources/0/{name}": text for name, text in sources.items()})


def test_that_a_batch_was_planned_says_that_the_one_before_is_done() -> None:
    files = files_of({Batch(3): planned("three"), Batch(4): planned("four", before="done", a="x")})
    assert files == {
        "metadata": b"id",
        "offsets/3": b"three",
        "offsets/4": b"four",
        "commits/3": b"done",
        "sources/0/a": b"x",
    }
    assert files_of({Batch(0): planned("o", commit="c"), Batch(1): planned("p")})["commits/0"] == BARE_COMMIT
    assert files_of({Batch(0): planned("o", commit="c")})["commits/0"] == b"c"


def test_of_one_batch_the_newest_driver_counts(tmp_path: Path) -> None:
    log = PlannedBatches(open_store(tmp_path))
    log.write(Batch(1), LATER, planned("new"))
    log.write(Batch(1), EPOCH, planned("old"))
    assert log.read() == {Batch(1): planned("new")}


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def test_what_spark_writes_is_the_same_in_another_folder(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = SparkCopies(store)
    first.take_up(store, lambda: EPOCH)
    written = {"metadata": "id", "sources/0/0": "a", "sources/0/.0.crc": "no"}
    for batch in range(3):
        written |= {f"offsets/{batch}": f"o{batch}"} | ({"sources/0/1": "b"} if batch else {})
        for name, text in written.items():
            write(first.folder, name, text)
        first.keep(Batch(batch))
        written |= {f"commits/{batch}": f"c{batch}"}
    second = SparkCopies(store)
    second.restore()
    del written["commits/2"], written["sources/0/.0.crc"]
    assert {name: (second.folder / name).read_text() for name in written} == written
    assert newest_of(second.checkpoint, "commits") == 1
    write(first.folder, "commits/2", "c2")
    first.keep_commit()
    first.keep_commit()
    second.restore()
    assert (second.folder / "commits/2").read_text() == "c2"
    assert newest_of(whole_checkpoint(store), "commits") == 2
    # A batch that runs again has the files of its sources once more.
    second.take_up(store, lambda: LATER)
    second.keep(Batch(1))
    assert PlannedBatches(store.below(FOLDER)).read()[Batch(1)].sources == {"sources/0/1": "b"}


def test_spark_may_get_a_connector_and_lose_it_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    log = PlannedBatches(store.below(FOLDER))
    for batch in range(3):
        log.write(Batch(batch), EPOCH, planned(f"o{batch}"))
    hand_to_spark(store)
    assert not log.read() and whole_checkpoint(store) is store
    assert newest_of(store, "offsets") == 2 and newest_of(store, "commits") == 1
    # Spark itself goes on, and a driver of before wakes up.
    store.put("offsets/3", b"o3")
    store.put("commits/2", b"c2")
    log.write(Batch(2), EPOCH, planned("stale"))
    hand_to_spark(store)
    assert store.get("offsets/2") == b"o2" and not log.read()
    copies = SparkCopies(store)
    copies.restore()
    assert (copies.folder / "offsets/3").read_text() == "o3"
    copies.take_up(store, lambda: LATER)
    copies.keep(Batch(3))
    assert newest_of(whole_checkpoint(store), "offsets") == 3


def test_a_divided_checkpoint_is_one(tmp_path: Path) -> None:
    store = DividedStore(open_store(tmp_path / "ours"), open_store(tmp_path / "sparks"))
    for name in ("metadata", "offsets/1", "afspark/identity", "other"):
        store.put(name, name.encode())
    assert store.list("") == ["afspark/identity", "metadata", "offsets/1", "other"]
    assert store.list("offsets") == ["offsets/1"] and store.has("metadata")
    assert sorted(path.name for path in (tmp_path / "sparks").iterdir()) == ["metadata", "offsets"]
    store.delete(["offsets/1", "other"])
    assert store.list("") == ["afspark/identity", "metadata"]


def test_given_files_are_read_only() -> None:
    files = GivenFiles({"offsets/1": b"x"}, "here")
    assert files.has("offsets/1") and not files.has("offsets/2")
    with pytest.raises(UsageError):
        files.put("a", b"")
    with pytest.raises(UsageError):
        files.delete(["a"])
