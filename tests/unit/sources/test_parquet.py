"""Parquet chunks: row groups, projections, and files that are bad, mended, changed or gone."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afspark.errors import InputError, UsageError
from afspark.sources import Chunk, ParquetFiles, Source
from tests.unit.sources.conftest import DictStore


def table(start: int, rows: int) -> pa.Table:
    keys = pa.array(range(start, start + rows), pa.int64())
    return pa.table({"key": keys, "name": keys.cast(pa.string()), "half": keys.cast(pa.float64())})


def write(path: Path, start: int = 0, rows: int = 1000, group: int = 100) -> Path:
    pq.write_table(table(start, rows), path, row_group_size=group)
    return path


def chunks_of(source: Source, log: DictStore) -> list[Chunk]:
    planner = source.planner(log)
    return planner.chunks(planner.initial(), planner.discover())


def read_all(source: Source, chunks: list[Chunk]) -> pa.Table:
    return pa.Table.from_batches([batch for chunk in chunks for batch in source.read(chunk)], source.schema())


@pytest.mark.parametrize("chunk_bytes", [1, 3000, 10**9])
def test_chunks_of_any_size_give_all_rows_once(tmp_path, log, chunk_bytes):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", start=1000)
    source = ParquetFiles(str(tmp_path), chunk_bytes=chunk_bytes)
    chunks = chunks_of(source, log)
    assert len(chunks) == {1: 20, 3000: 10, 10**9: 2}[chunk_bytes]
    assert read_all(source, chunks).equals(table(0, 2000))
    assert all(chunk.bytes > 0 for chunk in chunks)


def test_only_the_wanted_columns_in_the_wanted_order(tmp_path, log):
    write(tmp_path / "a.parquet")
    source = ParquetFiles(str(tmp_path), ("half", "key"))
    assert source.schema() == pa.schema([("half", pa.float64()), ("key", pa.int64())])
    assert read_all(source, chunks_of(source, log)).equals(table(0, 1000).select(["half", "key"]))


def test_an_unreadable_file_does_not_stop_discovery_and_reads_when_mended(tmp_path, log):
    write(tmp_path / "good.parquet")
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"PAR1 this is no footer")
    source = ParquetFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    (broken,) = [chunk for chunk in chunks if chunk.path == str(bad)]
    assert read_all(source, [chunk for chunk in chunks if chunk is not broken]).num_rows == 1000
    with pytest.raises(InputError) as caught:
        list(source.read(broken))
    assert (caught.value.path, caught.value.missing) == (str(bad), False)
    write(bad, rows=555)
    assert read_all(source, [broken]).equals(table(0, 555))


def test_damaged_pages_name_the_file(tmp_path, log):
    path = write(tmp_path / "a.parquet")
    source = ParquetFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xee" * 1996
    path.write_bytes(bytes(data))
    with pytest.raises(InputError) as caught:
        list(source.read(chunks[0]))
    assert caught.value.path == str(path)


@pytest.mark.parametrize(("rows", "group"), [(500, 100), (1000, 50)])
def test_a_file_with_other_row_groups_is_noticed(tmp_path, log, rows, group):
    path = write(tmp_path / "a.parquet")
    source = ParquetFiles(str(tmp_path))
    (chunk,) = chunks_of(source, log)
    write(path, rows=rows, group=group)
    with pytest.raises(InputError) as caught:
        list(source.read(chunk))
    assert (caught.value.path, caught.value.changed) == (str(path), True)


def test_missing_files_are_listed_and_named(tmp_path, log):
    write(tmp_path / "a.parquet")
    gone = write(tmp_path / "b.parquet")
    source = ParquetFiles(str(tmp_path))
    planner = source.planner(log)
    chunks = planner.chunks(planner.initial(), planner.discover())
    gone.unlink()
    (missing,) = planner.missing(chunks)
    assert missing.path == str(gone)
    with pytest.raises(InputError) as caught:
        list(source.read(missing))
    assert (caught.value.path, caught.value.missing) == (str(gone), True)


def test_a_file_without_rows_is_logged_and_read(tmp_path, log):
    write(tmp_path / "a.parquet", rows=0)
    source = ParquetFiles(str(tmp_path))
    chunks = chunks_of(source, log)
    assert len(chunks) == 1
    assert read_all(source, chunks).num_rows == 0


def test_a_file_without_the_column_is_named(tmp_path, log):
    write(tmp_path / "a.parquet")
    other = tmp_path / "b.parquet"
    pq.write_table(pa.table({"key": [1]}), other)
    source = ParquetFiles(str(tmp_path), ("half",))
    with pytest.raises(InputError) as caught:
        read_all(source, chunks_of(source, log))
    assert (caught.value.path, caught.value.column) == (str(other), "half")


def test_validate_checks_input_columns_and_types(tmp_path):
    with pytest.raises(UsageError):
        ParquetFiles(str(tmp_path / "absent")).validate()
    (tmp_path / "0").write_bytes(b"no parquet")
    with pytest.raises(UsageError) as caught:
        ParquetFiles(str(tmp_path)).validate()
    assert caught.value.path == str(tmp_path)
    write(tmp_path / "a.parquet")
    ParquetFiles(str(tmp_path), ("key",)).validate({"key": "integer"})
    ParquetFiles(str(tmp_path)).validate({"half": "number", "key": "number", "name": "text"})
    for columns, needs in [(("nope",), {}), (None, {"nope": "any"}), (("key",), {"half": "any"})]:
        with pytest.raises(UsageError) as caught:
            ParquetFiles(str(tmp_path), columns).validate(needs)
        assert caught.value.column == "half" if "half" in needs else "nope"
    with pytest.raises(UsageError) as caught:
        ParquetFiles(str(tmp_path)).validate({"name": "number"})
    assert (caught.value.column, caught.value.wanted) == ("name", "number")
