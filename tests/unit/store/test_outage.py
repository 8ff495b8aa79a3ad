"""A store whose place is moved away for real, for a while or for good."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from afspark.errors import ObjectMissing, StoreAway, StoreNotWritable
from afspark.store import Store, claim, open_store
from afspark.store.identity import attached
from afspark.store.local import LocalStore
from afspark.store.remote import ArrowStore


def checkpoint(root: Path, seconds: float = 60.0) -> Store:
    store = open_store(root / "checkpoint")
    claim(store.below("afspark"), "f", {})
    store.put("afspark/known", b"x")
    return attached(store, seconds)


REQUESTS: list[Callable[[Store], Any]] = [
    lambda store: store.put("afspark/new/object", b"y"),
    lambda store: store.get("afspark/known"),
    lambda store: store.has("afspark/known"),
    lambda store: store.list("afspark"),
]


@pytest.mark.parametrize("ask", REQUESTS)
def test_a_store_that_comes_back_was_never_missed(tmp_path: Path, ask: Callable[[Store], Any]) -> None:
    store = checkpoint(tmp_path)
    expected = ask(store)
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    back = threading.Timer(0.3, (tmp_path / "moved").rename, [tmp_path / "checkpoint"])
    back.start()
    assert ask(pickle.loads(pickle.dumps(store))) == expected
    back.join()
    assert store.get("afspark/known") == b"x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


@pytest.mark.parametrize("ask", REQUESTS)
def test_a_store_that_stays_away_stops_whoever_needs_it(tmp_path: Path, ask: Callable[[Store], Any]) -> None:
    store = checkpoint(tmp_path, seconds=0.2)
    place = tmp_path / "checkpoint"
    place.rename(tmp_path / "moved")
    with pytest.raises(StoreAway) as caught:
        ask(store)
    assert caught.value.path == store.path and "\n" not in str(caught.value)
    assert not place.exists(), "nothing was made in its place"
    (tmp_path / "moved").rename(place)
    ask(store)


def test_what_spark_makes_anew_is_not_the_store(tmp_path: Path) -> None:
    store = checkpoint(tmp_path, seconds=0.2)
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(StoreAway):
        store.below("afspark").put("object", b"x")
    assert [path.name for path in (tmp_path / "checkpoint").iterdir()] == ["offsets"]


def test_only_the_first_one_waits_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = checkpoint(tmp_path, seconds=0.2)
    (tmp_path / "checkpoint").rename(tmp_path / "moved")
    with pytest.raises(StoreAway):
        store.list("")
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waited again"))
    with pytest.raises(StoreAway):
        store.list("")


def test_an_object_that_is_missing_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = checkpoint(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waited"))
    with pytest.raises(ObjectMissing):
        store.get("afspark/unknown")
    assert store.list("afspark/unknown") == [] and not store.has("afspark/unknown")


class Leaving(LocalStore):
    """A folder that somebody moves away right after it was seen there, to bring it back a moment later."""

    moves: int = 0

    def has(self, name: str) -> bool:
        found = super().has(name)
        place = Path(self.path)
        if found and self.moves:
            self.moves -= 1
            away = place.with_name("moved")
            place.rename(away)
            threading.Timer(0.3, away.rename, [place]).start()
        return found


class LeavingForGood(Leaving):
    def has(self, name: str) -> bool:
        found = super().has(name)
        if found and Path(self.path).exists():
            Path(self.path).rename(f"{self.path}-moved")
        return found


@pytest.mark.parametrize("moves", [1, 2])
def test_a_process_that_knows_no_folder_yet_makes_none_in_a_place_that_goes_away_under_it(
    tmp_path: Path, moves: int
) -> None:
    checkpoint(tmp_path)
    root = LocalStore(str(tmp_path / "checkpoint"))
    leaving = Leaving(root.path)
    leaving.moves = moves
    attached(leaving, 10).put("afspark/new/object", b"y")
    assert root.get("afspark/new/object") == b"y" and root.get("afspark/known") == b"x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint"]


@pytest.mark.parametrize("name", ["afspark/new/object", "afspark/object", "object", "other/object"])
def test_nothing_is_made_in_a_place_that_goes_away_for_good(tmp_path: Path, name: str) -> None:
    checkpoint(tmp_path)
    with pytest.raises(StoreAway):
        attached(LeavingForGood(str(tmp_path / "checkpoint")), 0.1).put(name, b"y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-moved"]


@pytest.mark.parametrize("gone", ["", "afspark"])
@pytest.mark.parametrize(
    "store_at",
    [open_store, lambda root: ArrowStore.over(pafs.LocalFileSystem(), str(root))],
    ids=["local", "arrow"],
)
def test_standing_folders_are_never_made(tmp_path: Path, store_at: Callable[[Path], Store], gone: str) -> None:
    place = tmp_path / "checkpoint"
    store = store_at(place).standing("afspark")
    store = pickle.loads(pickle.dumps(store))
    (place / "afspark").mkdir(parents=True)
    store.put("afspark/a/b/object", b"x")
    (place / gone).rename(tmp_path / "moved")
    with pytest.raises(StoreNotWritable):
        store.put("afspark/c/object", b"x")
    assert not (place / gone).exists()
