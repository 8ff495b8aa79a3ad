"""The durable list of files: the same chunks in the same order, whatever happens to folder and process."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import CheckpointError, CorruptObject, ForeignObject
from afspark.sources import Chunk, Planner, TextFiles
from afspark.sources import file_log as module
from afspark.sources.file_log import FileLog
from afspark.sources.file_source import FoundFile
from tests.unit.sources.conftest import DictStore


def found(name: str, size: int = 10) -> FoundFile:
    return FoundFile(name, size, 1)


def pieces(*weights: int) -> list[dict[str, int]]:
    return [{"bytes": weight} for weight in weights]


def planner_of(folder: Path, log: DictStore, chunk_bytes: int = 4) -> Planner:
    return TextFiles(str(folder), chunk_bytes=chunk_bytes).planner(log)


def all_chunks(planner: Planner) -> list[Chunk]:
    return planner.chunks(planner.initial(), planner.discover())


def test_a_reopened_planner_sees_the_same_although_the_folder_changed(tmp_path, log):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 9)
    first = planner_of(tmp_path, log)
    before = all_chunks(first)
    assert [chunk.bytes for chunk in before] == [3, 3, 3] * 3
    (tmp_path / "a").unlink()
    (tmp_path / "0").write_bytes(b"new")
    second = planner_of(tmp_path, log, chunk_bytes=1000)
    after = all_chunks(second)
    assert after[: len(before)] == before
    assert [chunk.path for chunk in after[len(before) :]] == [str(tmp_path / "0")]
    assert first.chunks({"chunks": 8}, {"chunks": 10}) == after[8:10]
    assert second.missing(after) == before[:3]


def test_discovery_without_news_writes_nothing(tmp_path, log):
    (tmp_path / "a").write_bytes(b"x")
    planner = planner_of(tmp_path, log)
    assert planner.discover() == planner.discover() == {"chunks": 1}
    (tmp_path / "empty").touch()
    assert planner.discover() == {"chunks": 1}
    (tmp_path / "empty").write_bytes(b"now filled")
    assert planner.discover() == {"chunks": 4}
    assert log.puts == ["files/00000000", "files/00000001"]


def test_an_offset_is_durable_before_it_is_returned(tmp_path, log):
    (tmp_path / "a").write_bytes(b"x")
    log.die_after = 40
    with pytest.raises(KeyboardInterrupt):
        planner_of(tmp_path, log).discover()
    reopened = planner_of(tmp_path, log)
    assert reopened.initial() == {"chunks": 0}
    with pytest.raises(CheckpointError):
        reopened.chunks({"chunks": 0}, {"chunks": 1})


@given(cut=st.integers(0, 300))
def test_a_torn_segment_is_passed_over(cut):
    store = DictStore()
    FileLog(store).append([(found("a"), pieces(1, 2))])
    whole = store.objects["files/00000000"]
    store.objects["files/00000001"] = whole[: min(cut, len(whole) - 1)]
    log, reader = FileLog(store), FileLog(store)
    assert len(log) == 2
    log.append([(found("b"), pieces(3))])
    assert store.puts == ["files/00000000", "files/00000002"]
    assert reader.slice(0, 3) == FileLog(store).slice(0, 3) == log.slice(0, 3)
    assert [chunk.path for chunk in log.slice(0, 3)] == ["a", "a", "b"]


def test_a_segment_still_being_written_is_read_later(log):
    writer, reader = FileLog(log), FileLog(log)
    writer.append([(found("a"), pieces(1))])
    whole = log.objects["files/00000000"]
    log.objects["files/00000000"] = whole[:20]
    reader.refresh()
    assert len(reader) == 0
    log.objects["files/00000000"] = whole
    assert len(reader.slice(0, 1)) == 1


def test_damage_is_told_from_a_torn_end(log):
    FileLog(log).append([(found("a"), pieces(1))])
    data = bytearray(log.objects["files/00000000"])
    data[-3] ^= 1
    log.objects["files/00000000"] = bytes(data)
    with pytest.raises(CorruptObject) as caught:
        FileLog(log)
    assert caught.value.name == "files/00000000"


def test_a_lost_segment_in_the_middle_is_noticed(log):
    writer = FileLog(log)
    for name in "abc":
        writer.append([(found(name), pieces(1))])
    log.objects["files/00000001"] = b""
    with pytest.raises(CorruptObject) as caught:
        FileLog(log)
    assert caught.value.name == "files/00000002"


def test_another_format_is_refused(log, monkeypatch):
    monkeypatch.setattr(module, "FORMAT", 99)
    FileLog(log).append([(found("a"), pieces(1))])
    monkeypatch.undo()
    with pytest.raises(ForeignObject) as caught:
        FileLog(log)
    assert (caught.value.found, caught.value.expected) == (99, 1)


def test_files_known_to_another_writer_are_not_logged_twice(log):
    first, second = FileLog(log), FileLog(log)
    first.append([(found("a"), pieces(1))])
    second.append([(found("a"), pieces(1)), (found("b"), pieces(1))])
    assert [chunk.path for chunk in second.slice(0, 2)] == ["a", "b"]
    assert len(second) == 2


def test_many_files_make_several_segments(log, monkeypatch):
    monkeypatch.setattr(module, "_FILES_PER_SEGMENT", 3)
    FileLog(log).append([(found(str(i)), pieces(i)) for i in range(8)])
    assert len(log.puts) == 3
    assert [chunk.path for chunk in FileLog(log).slice(0, 8)] == [str(i) for i in range(8)]


@given(
    weights=st.lists(st.integers(0, 20), min_size=1, max_size=20),
    bounds=st.tuples(st.integers(0, 20), st.integers(0, 20)),
    most=st.integers(0, 100),
)
def test_limit_takes_as_much_as_fits_and_at_least_one(weights, bounds, most):
    log = FileLog(DictStore())
    log.append([(found("a"), pieces(*weights))])
    start, end = sorted(min(bound, len(weights)) for bound in bounds)
    reached = log.limit(start, end, most)
    assert min(start + 1, end) <= reached <= end
    assert reached <= start + 1 or sum(weights[start:reached]) <= most
    assert reached == end or sum(weights[start : reached + 1]) > most


def test_a_file_that_grew_is_warned_about_once(tmp_path, log, caplog):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    planner = planner_of(tmp_path, log)
    planner.discover()
    path.write_bytes(b"xyz")
    with caplog.at_level(logging.WARNING):
        planner.discover()
        planner.discover()
    assert [record.args for record in caplog.records] == [(str(path),)]
