"""What a controller knows is found by later drivers."""

from __future__ import annotations

from pathlib import Path

from afspark.store import open_store
from afspark.store.control_log import CONTROL, ControlLog

FIRST, SECOND = "00000001-00000000000000aa", "00000002-00000000000000bb"


def test_whoever_comes_later_reads_what_all_have_left(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    ControlLog(store).write(FIRST, {"units": [1]})
    ControlLog(store).write(SECOND, {"units": [1, 2]})
    assert ControlLog(store).read() == ([{"units": [1]}, {"units": [1, 2]}], [])


def test_few_objects_stay(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    old, new = ControlLog(store), ControlLog(store)
    old.write(FIRST, {"number": -1})
    for number in range(9):
        new.write(SECOND, {"number": number})
    # A driver that was replaced and goes on takes nothing from the one after it.
    old.write(FIRST, {"number": -2})
    found, _ = new.read()
    assert [one["number"] for one in found] == [7, 8]


def test_what_is_torn_is_told_and_the_one_before_it_serves(tmp_path: Path) -> None:
    log = ControlLog(open_store(str(tmp_path)))
    log.write(FIRST, {"number": 1})
    log.write(FIRST, {"number": 2})
    newest = max((tmp_path / CONTROL / FIRST).iterdir())
    newest.write_bytes(newest.read_bytes()[:-9])
    found, damaged = log.read()
    assert [one["number"] for one in found] == [1]
    assert [one.name for one in damaged] == [f"{CONTROL}/{FIRST}/{newest.name}"]
