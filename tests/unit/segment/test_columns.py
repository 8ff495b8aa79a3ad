from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.errors import NoSpace, SegmentError
from afspark.model.states import HashTable, Set, Vector
from afspark.model.states.columns import Columns
from afspark.resident import MappedColumns
from afspark.resident.open_folder import OpenFolder
from afspark.resident.peek import PrivateColumns
from afspark.task.pane_states import PaneStates

INT = np.dtype(np.int64)


@pytest.fixture
def columns(tmp_path: Path) -> MappedColumns:
    (tmp_path / "columns").mkdir()
    return MappedColumns(OpenFolder(tmp_path / "columns"))


def test_is_a_columns_and_new_ones_are_zero(columns: MappedColumns) -> None:
    seen: Columns = columns
    array = seen.open("a", INT, 1000)
    assert len(array) >= 1000
    assert array.dtype == INT
    assert not array.any()
    assert seen.length("a") == len(array)


def test_content_outlives_the_object(tmp_path: Path) -> None:
    MappedColumns(OpenFolder(tmp_path)).open("a", INT, 10)[:10] = np.arange(10)
    again = MappedColumns(OpenFolder(tmp_path))
    assert again.open("a", INT, 1)[:10].tolist() == list(range(10))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint32", "uint64", "int64", "float32", "float64"])
def test_every_element_type_is_found_again(tmp_path: Path, dtype: str) -> None:
    MappedColumns(OpenFolder(tmp_path)).open("a", dtype, 3)[:3] = np.array([1, 0, 1], dtype)
    again = MappedColumns(OpenFolder(tmp_path))
    assert again.grow("a", 10_000)[:3].tolist() == [1, 0, 1]
    assert again.grow("a", 1).dtype == np.dtype(dtype)


def test_zero_length_gives_a_whole_page(columns: MappedColumns) -> None:
    array = columns.open("a", INT, 0)
    assert array.nbytes == os.sysconf("SC_PAGESIZE")


def test_grow_keeps_content_and_adds_zeros(columns: MappedColumns) -> None:
    array = columns.open("a", INT, 512)
    array[:] = 7
    longer = columns.grow("a", 5000)
    assert len(longer) >= 5000
    assert (longer[:512] == 7).all()
    assert not longer[512:].any()


def test_old_arrays_stay_valid_and_share_memory(columns: MappedColumns) -> None:
    old = columns.open("a", INT, 512)
    new = columns.grow("a", 100_000)
    gc.collect()
    new[3] = 42
    assert old[3] == 42
    columns.drop("a")
    columns.close()
    gc.collect()
    old[4] = 43
    assert old[4] == 43


def test_no_column_keeps_a_descriptor(columns: MappedColumns, tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    arrays = [columns.open(f"pane-{number}", INT, 512) for number in range(100)]
    looked_at = PrivateColumns(tmp_path / "columns").arrays()
    assert len(looked_at) == len(arrays)
    assert os.listdir("/proc/self/fd") == before


def test_mapping_goes_with_the_last_array(columns: MappedColumns) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/columns/a@i8")

    part = columns.open("a", INT, 512)[3:5].view(np.float64)
    columns.grow("a", 100_000)
    gc.collect()
    assert mapped() == 2
    part[:] = 1.5
    del part
    gc.collect()
    assert mapped() == 1
    columns.close()
    assert mapped() == 0


def test_a_process_that_may_not_map_more_is_told_which_limit(columns: MappedColumns, tmp_path: Path) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (8 << 20), hard))
    try:
        with pytest.raises(NoSpace, match="max_map_count") as caught:
            columns.open("a", np.dtype(np.uint8), 32 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    error = caught.value
    assert (error.path, error.wanted) == (str(tmp_path / "columns" / "a@u1"), 32 << 20)
    assert error.limit == int(Path("/proc/sys/vm/max_map_count").read_text())
    assert error.remedy


USE_ALL_MAPPINGS = """
import sys
from afspark.errors import NoSpace
from afspark.resident.memory_map import SHARED, map_file
with open(sys.argv[1], "r+b") as page:
    arrays = []
    try:
        while True:
            arrays.append(map_file(page.fileno(), 4096, SHARED, sys.argv[1]))
    except NoSpace as error:
        print(error.limit, len(arrays) < error.limit)
"""


def test_a_process_that_has_all_mappings_can_still_say_so(tmp_path: Path) -> None:
    limit = Path("/proc/sys/vm/max_map_count").read_text().strip()
    if int(limit) > 100_000:
        pytest.skip("it would take long here")
    (tmp_path / "page").write_bytes(bytes(4096))
    run = subprocess.run(
        [sys.executable, "-c", USE_ALL_MAPPINGS, str(tmp_path / "page")], capture_output=True, text=True, check=False
    )
    assert (run.stdout.strip(), run.stderr) == (f"{limit} True", "")


def test_grow_of_a_long_enough_column_returns_the_same_array(columns: MappedColumns) -> None:
    array = columns.open("a", INT, 512)
    assert columns.grow("a", 10) is array


def test_growth_by_another_process_is_seen(tmp_path: Path) -> None:
    here, there = MappedColumns(OpenFolder(tmp_path)), MappedColumns(OpenFolder(tmp_path))
    here.open("a", INT, 512)
    unchanged = here.open("b", INT, 512)
    there.open("a", INT, 5000)[4999] = 9
    assert here.length("a") >= 5000
    assert here.refresh() == {"a"}
    assert here.open("a", INT, 1)[4999] == 9
    assert here.open("b", INT, 1) is unchanged


def test_growth_by_another_process_is_seen_without_refresh(tmp_path: Path) -> None:
    here, there = MappedColumns(OpenFolder(tmp_path)), MappedColumns(OpenFolder(tmp_path))
    here.open("a", INT, 512)
    there.open("a", INT, 5000)[4999] = 9
    assert here.open("a", INT, 1)[4999] == 9


def test_column_replaced_by_another_process_is_seen(tmp_path: Path) -> None:
    here, there = MappedColumns(OpenFolder(tmp_path)), MappedColumns(OpenFolder(tmp_path))
    here.open("a", INT, 512)[0] = 1
    there.drop("a")
    there.open("a", INT, 512)[0] = 2
    assert here.open("a", INT, 512)[0] == 2


@pytest.mark.parametrize("use", [lambda columns: columns.grow("a", 5000), lambda columns: columns.open("a", INT, 1)])
def test_a_column_that_somebody_has_removed_is_not_made_anew(
    columns: MappedColumns, tmp_path: Path, use: Callable[[MappedColumns], Any]
) -> None:
    """It would be empty, and what is made of it a wrong backup."""
    array = columns.open("a", INT, 512)
    array[:] = 7
    (tmp_path / "columns" / "a@i8").unlink()
    with pytest.raises(SegmentError, match="gone"):
        use(columns)
    assert (array == 7).all() and not list((tmp_path / "columns").iterdir())


def test_drop_forgets_content(columns: MappedColumns) -> None:
    columns.open("a", INT, 10)[:] = 5
    columns.drop("a")
    columns.drop("a")
    assert columns.length("a") == 0
    assert columns.names() == []
    assert not columns.open("a", np.dtype(np.float64), 10).any()


def test_names_with_any_character_and_common_prefixes(columns: MappedColumns) -> None:
    names = ["a", "a.meta", "a@i8", "x/../y", "*", "ü [1]", "."]
    for number, name in enumerate(names):
        columns.open(name, INT, 1)[0] = number
    assert columns.names() == sorted(names)
    for number, name in enumerate(names):
        assert columns.grow(name, 1)[0] == number


def test_other_element_type_is_refused(tmp_path: Path) -> None:
    MappedColumns(OpenFolder(tmp_path)).open("a", INT, 1)
    with pytest.raises(SegmentError) as caught:
        MappedColumns(OpenFolder(tmp_path)).open("a", np.dtype(np.float64), 1)
    assert (caught.value.column, caught.value.found, caught.value.expected) == ("a", "int64", "float64")


@pytest.mark.parametrize("dtype", ["S3", ">i8", "O", "datetime64[s]"])
def test_unfit_element_types_are_refused(columns: MappedColumns, dtype: str) -> None:
    with pytest.raises(SegmentError):
        columns.open("a", dtype, 1)


def test_growing_what_does_not_exist_is_refused(columns: MappedColumns) -> None:
    with pytest.raises(SegmentError):
        columns.grow("a", 1)


def test_memory_counts_files(columns: MappedColumns) -> None:
    columns.open("a", INT, 1024)
    columns.open("b", np.dtype(np.uint8), 1)
    assert columns.memory == 8192 + os.sysconf("SC_PAGESIZE")


def test_what_another_process_adds_and_drops_is_seen_after_refresh(tmp_path: Path) -> None:
    here, there = MappedColumns(OpenFolder(tmp_path)), MappedColumns(OpenFolder(tmp_path))
    here.open("a", INT, 1)
    there.open("b", INT, 1)
    there.drop("a")
    here.refresh()
    assert here.names() == ["b"]
    here.drop("b")
    assert here.names() == [] and not list(tmp_path.iterdir())


def test_a_file_that_is_no_column_is_ignored(columns: MappedColumns, tmp_path: Path) -> None:
    (tmp_path / "columns" / "notes").write_text("x")
    assert columns.names() == []


@pytest.mark.parametrize("spec", [HashTable(key="int64"), HashTable(), Set(), Vector()], ids=repr)
def test_the_folder_is_listed_once_however_many_states_are_in_it(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MappedColumns(OpenFolder(tmp_path)).open("old", INT, 1)
    listed = []
    for name in ("listdir", "scandir"):
        list_folder = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path=".", call=list_folder: listed.append(path) or call(path))
    columns = MappedColumns(OpenFolder(tmp_path))
    panes = PaneStates(columns, {"n": spec}, paned=True)
    for pane in range(50):
        panes.of(pane)
    panes.drop_below(25)
    assert len(list(panes)) == 25 and len(columns.names()) > 25
    assert sum(isinstance(path, int) for path in listed) == 1


def test_storage_is_real_before_it_is_written(columns: MappedColumns, tmp_path: Path) -> None:
    columns.open("a", INT, 1 << 17)
    (file,) = (tmp_path / "columns").iterdir()
    assert file.stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_full_file_system_is_an_error_and_changes_nothing(
    columns: MappedColumns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    columns.open("a", INT, 512)[:] = 3

    def refuse(file: int, offset: int, length: int) -> None:
        os.ftruncate(file, offset + length // 2)  # as an emulated fallocate may leave it
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(NoSpace) as caught:
        columns.grow("a", 1024)
    assert caught.value.wanted == 4096
    assert caught.value.path == str(tmp_path / "columns" / "a@i8")
    assert caught.value.remedy
    with pytest.raises(NoSpace):
        columns.open("b", INT, 1)
    assert columns.names() == ["a"]
    assert columns.length("a") == 512
    assert (columns.open("a", INT, 1) == 3).all()


def test_other_system_errors_are_those_of_the_segment(columns: MappedColumns, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, offset: int, length: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(SegmentError, match="input/output"):
        columns.open("a", INT, 1)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    path = tmp_path / "tiny"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting is not permitted here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def test_really_full_file_system(tiny: Path) -> None:
    (tiny / "columns").mkdir()
    columns = MappedColumns(OpenFolder(tiny / "columns"))
    columns.open("a", np.dtype(np.uint8), 128 << 10)[:] = 1
    with pytest.raises(NoSpace) as caught:
        columns.grow("a", 512 << 10)
    assert caught.value.wanted == 384 << 10
    assert 0 < caught.value.free <= 128 << 10
    assert columns.length("a") == 128 << 10
    assert (columns.open("a", np.dtype(np.uint8), 1) == 1).all()
    with pytest.raises(NoSpace):
        columns.open("b", INT, 1 << 20)
    assert columns.names() == ["a"]


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=12), reopen=st.integers(0, 11))
def test_growing_step_by_step_equals_one_long_column(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], reopen: int
) -> None:
    directory = tmp_path_factory.mktemp("columns")
    columns = MappedColumns(OpenFolder(directory))
    columns.open("a", INT, 0)
    written = 0
    for step, length in enumerate(lengths):
        if step == reopen:
            columns = MappedColumns(OpenFolder(directory))
        array = columns.grow("a", length)
        assert len(array) >= length
        array[written:length] = np.arange(written, length)
        written = max(written, length)
    final = MappedColumns(OpenFolder(directory)).open("a", INT, 0)
    assert final[:written].tolist() == list(range(written))
    assert not final[written:].any()
