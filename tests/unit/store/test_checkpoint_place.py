"""A checkpoint that was moved is the same query; a copy beside the original is another one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from afspark.store import claim, open_store
from afspark.store.checkpoint_place import settle_place
from afspark.store.naming import FOLDER, PLACE


def started(folder: Path) -> str:
    """The number under which a query runs there."""
    checkpoint = open_store(folder)
    return settle_place(checkpoint, str(folder), claim(checkpoint.below(FOLDER), "abc", {})).query_id


@pytest.fixture
def first(tmp_path: Path) -> Path:
    return tmp_path / "first"


def test_a_checkpoint_that_stays_keeps_its_number(first: Path) -> None:
    assert started(first) == started(first)


def test_one_that_was_moved_keeps_its_number(first: Path) -> None:
    number = started(first)
    moved = first.rename(first.with_name("moved"))
    assert started(moved) == started(moved) == number
    assert started(moved.rename(first)) == number


def test_a_copy_gets_a_number_of_its_own_once(first: Path) -> None:
    number = started(first)
    copy = shutil.copytree(first, first.with_name("copy"))
    own = started(copy)
    assert own != number and started(copy) == own and started(first) == number


def test_a_copy_whose_original_is_gone_was_moved(first: Path) -> None:
    number = started(first)
    copy = shutil.copytree(first, first.with_name("copy"))
    shutil.rmtree(first)
    assert started(copy) == number


def test_a_copy_whose_original_has_become_another_query_is_the_first(first: Path) -> None:
    number = started(first)
    copy = shutil.copytree(first, first.with_name("copy"))
    shutil.rmtree(first)
    assert started(first) != number
    assert started(copy) == number


def test_another_name_of_the_same_folder_is_no_copy(first: Path) -> None:
    number = started(first)
    link = first.with_name("link")
    link.symlink_to(first)
    assert started(link) == number == started(first)


def test_a_start_that_was_cut_off_asks_again(first: Path) -> None:
    number = started(first)
    copy = shutil.copytree(first, first.with_name("copy"))
    place = copy / FOLDER / PLACE
    before = place.read_bytes()
    own = started(copy)
    place.write_bytes(before)
    assert started(copy) == own != number


def test_one_of_an_earlier_release_says_nothing_of_its_place(first: Path) -> None:
    number = started(first)
    (first / FOLDER / PLACE).unlink()
    copy = shutil.copytree(first, first.with_name("copy"))
    assert started(copy) == number
