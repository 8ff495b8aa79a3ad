"""Which files a path stands for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs

from afspark.errors import InputError, UsageError
from afspark.sources import file_source
from afspark.sources.chunks import ByteRange
from afspark.sources.file_source import InputAwaited, absolute, exists, find_files, open_file, require_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for age, name in enumerate(["b.txt", "a.txt", "sub/c.txt", "sub/deep/d.log", ".hid", "_tmp/e.txt", "sub/_f.txt"]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, ns=(age, age))
    (tmp_path / "empty.txt").touch()
    return tmp_path


def names(root: Path, pattern: str) -> list[str]:
    return [os.path.relpath(file.path, root) for file in find_files(f"{root}/{pattern}".rstrip("/"))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("", ["b.txt", "a.txt", "sub/c.txt", "sub/deep/d.log"]),
        ("a.txt", ["a.txt"]),
        ("_tmp/e.txt", ["_tmp/e.txt"]),
        ("*.txt", ["b.txt", "a.txt"]),
        ("[b-z].txt", ["b.txt"]),
        ("?.txt", ["b.txt", "a.txt"]),
        ("*/*.txt", ["sub/c.txt"]),
        ("su*", ["sub/c.txt", "sub/deep/d.log"]),
        ("**/*.txt", ["b.txt", "a.txt", "sub/c.txt"]),
        ("nothing*", []),
        ("empty.txt", []),
        ("absent/", []),
    ],
)
def test_files_of_a_path(folder, pattern, expected):
    assert names(folder, pattern) == expected


def test_equal_times_are_ordered_by_name(folder):
    for name in ("a.txt", "b.txt"):
        os.utime(folder / name, ns=(7, 7))
    assert names(folder, "*.txt") == ["a.txt", "b.txt"]


def test_a_name_with_wildcard_characters_that_exists_is_itself(tmp_path):
    (tmp_path / "a[1].txt").write_bytes(b"x")
    assert names(tmp_path, "a[1].txt") == ["a[1].txt"]


def test_links_are_followed(folder, tmp_path):
    (folder / "link.txt").symlink_to(folder / "_tmp" / "e.txt")
    assert "link.txt" in names(folder, "*.txt")


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_file_addresses(tmp_path, form):
    (tmp_path / "a b").write_bytes(b"x")
    path = absolute(form.format(tmp_path) + "/a%20b")
    assert path == str(tmp_path / "a b")
    assert [file.path for file in find_files(path)] == [path]


def test_relative_and_home_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert absolute("in/x") == str(tmp_path / "in" / "x")
    assert absolute("~/in") == "/home/somebody/in"
    assert absolute("s3://bucket/in") == "s3://bucket/in"


def test_other_file_systems_keep_their_address(folder):
    # A sub-tree address of the local file system takes the same way as a remote one.
    address = f"file://{folder}"
    found = find_files(address)
    assert [file.path for file in found] == [
        f"{address}/{name}" for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.log")
    ]
    assert exists(found[0].path)
    with open_file(found[0].path) as file:
        assert file.read() == b"x"
    assert [file.path for file in find_files(f"{address}/*.txt")] == [f"{address}/b.txt", f"{address}/a.txt"]


@pytest.mark.parametrize("pattern", ["absent", "*.csv", "empty.txt", "sub/deep/none/"])
def test_no_input_is_a_usage_error_on_one_line(folder, pattern):
    path = f"{folder}/{pattern}"
    with pytest.raises(UsageError) as caught:
        require_files(path)
    assert caught.value.path == path
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_an_unknown_file_system_is_a_usage_error():
    with pytest.raises(UsageError) as caught:
        require_files("nosuchscheme://x/y")
    assert caught.value.path == "nosuchscheme://x/y"


def test_opening_fails_with_the_path(tmp_path):
    with pytest.raises(InputError) as caught, open_file(str(tmp_path / "absent")):
        pass
    assert (caught.value.path, caught.value.missing) == (str(tmp_path / "absent"), True)
    with pytest.raises(InputError) as caught, open_file(str(tmp_path)):
        pass
    assert (caught.value.path, caught.value.missing) == (str(tmp_path), False)


def test_parameters_of_an_address_are_no_wildcards(tmp_path: Path) -> None:
    """Where a server is, is said behind a question mark."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("x")
    address = f"file://{tmp_path}/in?use_mmap"
    for asked in (address, f"file://{tmp_path}/*?use_mmap"):
        (found,) = require_files(asked)
        assert found.path == f"file://{tmp_path}/in/a.txt?use_mmap"
        with open_file(found.path) as file:
            assert file.read() == b"x"
    with pytest.raises(InputAwaited):
        require_files(f"file://{tmp_path}/in/*.csv?use_mmap")
    with pytest.raises(UsageError, match="does not exist"):
        require_files(f"file://{tmp_path}/none?use_mmap")


def test_files_of_a_bucket_that_stands_elsewhere_in_the_address() -> None:
    """As Azure has it: the file system's names begin with it."""
    address = "abfss://box@account.dfs.core.windows.net/in"
    before, bucket = file_source._around(address, "box/in")
    place = file_source._Place(fs.LocalFileSystem(), "box/in", before, "?x=1", bucket)
    assert place.path("box/in/a") == f"{address}/a?x=1" and place.parts(place.path("box/in/a")) == ["box", "in", "a"]
    with pytest.raises(UsageError, match="cannot be taken apart"):
        file_source._around("abfss://box@account.dfs.core.windows.net", "box")


def test_keys_in_an_address_are_told_to_nobody() -> None:
    """Neither in errors nor by what says where an item is."""
    path = "s3://key:secret@bucket/in/a?session_token=token"
    chunk = ByteRange(path=path, size=9, start=0, stop=9, bytes=9)
    for text in (str(file_source.changed(path, "it is shorter")), chunk.place):
        assert "bucket/in/a" in text and "secret" not in text and "token" not in text
