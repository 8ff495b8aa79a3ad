"""Which files a folder has to have: whoever is killed leaves a whole one, and whatever somebody removes is missed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from afspark.errors import SegmentError
from afspark.protocol.lifecycle import Absent, Present
from afspark.resident import Segment, examine
from afspark.resident.manifest import Manifest, ManifestSlots
from afspark.resident.open_folder import OpenFolder

PLACE = ManifestSlots(total=0, changing=1, changes=2)
#: what a process does: it makes files, and removes those of which it says so
CHANGES = ["a", "b", "-a", "c", "a", "-c", "-b", "-c", "d"]


class Killed(BaseException):
    """Nothing that the process would have done afterwards is done."""


class Life:
    """A process that is killed before its next act when it has done so many."""

    def __init__(self, acts: int) -> None:
        self.left = acts

    def act(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1


class MortalSlots:
    """Slots in memory that outlives the process."""

    def __init__(self, slots: Any, life: Life) -> None:
        self._slots, self._life = slots, life

    def __getitem__(self, place: int) -> int:
        return int(self._slots[place])

    def __setitem__(self, place: int, value: int) -> None:
        self._life.act()
        self._slots[place] = value


class MortalFolder(OpenFolder):
    """A folder that outlives the process."""

    life = Life(10**9)

    def has(self, name: str) -> bool:
        self.life.act()
        return super().has(name)

    def write(self, name: str, data: bytes | memoryview) -> None:
        self.life.act()
        super().write(name, data)

    def remove(self, name: str) -> None:
        self.life.act()
        super().remove(name)


def manifest(folder: Path, slots: Any, life: Life | None = None) -> tuple[Manifest, OpenFolder]:
    given = MortalFolder(folder)
    given.life = life or given.life
    return Manifest(MortalSlots(slots, given.life), PLACE, given, lambda name: not name.endswith(".tmp")), given  # type: ignore[arg-type]


def change(folder: Path, slots: Any, changes: list[str], life: Life | None = None) -> None:
    listed, files = manifest(folder, slots, life)
    for one in changes:
        name = one.removeprefix("-")
        if one.startswith("-"):
            with listed.removing(name):
                files.remove(name)
        else:
            with listed.making(name):
                files.write(name, b"x")


def acts_of(changes: list[str], folder: Path) -> int:
    """How many acts the changes take."""
    life = Life(10**9)
    folder.mkdir()
    change(folder, np.zeros(3, np.int64), changes, life)
    return 10**9 - life.left


def test_whenever_a_process_is_killed_the_next_one_finds_a_whole_folder(tmp_path: Path) -> None:
    for acts in range(acts_of(CHANGES, tmp_path / "all")):
        folder, slots = tmp_path / str(acts), np.zeros(3, np.int64)
        folder.mkdir()
        with pytest.raises(Killed):
            change(folder, slots, CHANGES, Life(acts))
        listed, _ = manifest(folder, slots)
        assert set(listed.names()) == {path.name for path in folder.iterdir()}
        # And goes on from there.
        change(folder, slots, CHANGES)
        assert sorted(listed.names()) == ["a", "d"]


def test_whichever_file_somebody_removes_is_missed_also_after_a_kill(tmp_path: Path) -> None:
    for acts in range(acts_of(CHANGES, tmp_path / "all")):
        folder, slots = tmp_path / str(acts), np.zeros(3, np.int64)
        folder.mkdir()
        change(folder, slots, ["old", "older"])
        with pytest.raises(Killed):
            change(folder, slots, CHANGES, Life(acts))
        (folder / "old").unlink()
        listed, _ = manifest(folder, slots)
        with pytest.raises(SegmentError, match="gone"):
            listed.names()
        # Whatever tasks make later does not hide it.
        with suppress(SegmentError):
            change(folder, slots, ["e", "f", "-e"])
        with pytest.raises(SegmentError, match="gone"):
            listed.names()


def test_an_error_in_the_midst_leaves_what_is_there(tmp_path: Path) -> None:
    slots = np.zeros(3, np.int64)
    listed, files = manifest(tmp_path, slots)
    for change in (listed.making, listed.removing):
        with suppress(RuntimeError), change("a"):
            files.write("a", b"x")
            raise RuntimeError
        with suppress(RuntimeError), change("b"):
            raise RuntimeError
    assert listed.names() == ["a"]


def test_what_somebody_removes_as_soon_as_it_is_made_is_missed(tmp_path: Path) -> None:
    listed, files = manifest(tmp_path, np.zeros(3, np.int64))
    with listed.making("a"):
        files.write("a", b"x")
        (tmp_path / "a").unlink()
    with pytest.raises(SegmentError, match="gone"):
        listed.names()


# --- in a segment -------------------------------------------------------------------------------------------


def in_a_batch(segment: Segment) -> None:
    """Two steps of a batch, after one that keeps something."""
    with segment.lock(1.0):
        segment.columns.open("counts.value", "int64", 1)
        segment.columns.open("counts.key", "int64", 1)
        segment.note("remember")
        segment.begin(0)
        segment.keep(0, "rows", b"rows")
        segment.finish(0, b"report")
        for step in (b"one", b"two"):
            segment.begin(1)
            segment.close_step(1, step)


@pytest.mark.parametrize(
    "file", ["columns/counts.value@i8", "note", "out-0-rows", "report-0.", "step-1-2", "header", "meta.json"]
)
def test_a_segment_that_lacks_any_of_its_files_is_gone(segment: Segment, file: str) -> None:
    in_a_batch(segment)
    assert isinstance(examine(segment.directory), Present)
    (segment.directory / file).unlink()
    assert examine(segment.directory) == Absent()
    assert Segment.open(segment.directory) is None


READS: dict[str, Callable[[Segment], Any]] = {
    "step-1-2": lambda segment: segment.step_note(1),
    "note": Segment.noted,
    "out-0-rows": lambda segment: segment.kept(0, "rows"),
    "report-0.": lambda segment: segment.report(0),
}


@pytest.mark.parametrize("file", READS)
def test_what_somebody_has_removed_does_not_pass_for_what_never_was(segment: Segment, file: str) -> None:
    """A step without its note would be done again, onto a state that has it."""
    in_a_batch(segment)
    with segment.lock(1.0):
        assert READS[file](segment)
        (segment.directory / file).unlink()
        with pytest.raises(SegmentError, match=r"gone|lost"):
            READS[file](segment)


def test_a_column_removed_before_a_task_has_listed_them_is_missed(segment: Segment) -> None:
    in_a_batch(segment)
    segment.close()
    again = Segment.open(segment.directory)
    assert again is not None
    with again.lock(1.0):
        (segment.directory / "columns" / "counts.key@i8").unlink()
        with pytest.raises(SegmentError, match="gone"):
            again.columns.open("counts.key", "int64", 1)
        # No change of its own hides it.
        with pytest.raises(SegmentError, match="gone"):
            again.columns.names()
    again.close()
    assert examine(segment.directory) == Absent()


def _make_and_remove(place: Path) -> None:
    segment = Segment.open(place)
    assert segment is not None
    with segment.lock(1.0):
        for number in range(100):
            segment.columns.open(f"counts@{number}.value", "int64", 1)
            segment.note("remember" if number % 2 else None)
            segment.columns.drop(f"counts@{number - 3}.value")


def test_a_segment_is_never_taken_for_gone_while_a_task_makes_and_removes_files(segment: Segment) -> None:
    in_a_batch(segment)
    task = multiprocessing.get_context("fork").Process(target=_make_and_remove, args=(segment.directory,))
    task.start()
    looks = 0
    while task.is_alive():
        assert isinstance(examine(segment.directory), Present), f"look {looks}"
        looks += 1
    task.join()
    assert task.exitcode == 0 and looks
    assert isinstance(examine(segment.directory), Present)
