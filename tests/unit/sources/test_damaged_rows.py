"""Rows in another encoding, of absurd size, without a column: file and row are named, or `on_bad` lets them pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afspark.errors import InputError, UsageError
from afspark.sources import CsvFiles, JsonFiles, ParquetFiles, Source, TextFiles, text_files
from afspark.store import open_store


def rows_of(source: Source, tmp_path: Path) -> list[dict[str, Any]]:
    planner = source.planner(open_store(str(tmp_path / "log")))
    chunks = planner.chunks(planner.initial(), planner.discover())
    return [row for chunk in chunks for batch in source.read(chunk) for row in batch.to_pylist()]


def refused(source: Source, tmp_path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        rows_of(source, tmp_path)
    assert caught.value.path and caught.value.remedy
    return caught.value


def test_a_line_that_is_not_utf8_is_named_or_read_with_replacements(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"one\ntwo\nth\xffree\n")
    path = str(tmp_path / "in")
    assert [row["value"] for row in rows_of(TextFiles(path, blocks=False), tmp_path)] == ["one", "two", "th\ufffdree"]
    error = refused(TextFiles(path, blocks=False, on_bad="stop"), tmp_path)
    assert error.row == 2 and "line 3" in error.message and "0xff" in error.message


def test_the_choice_does_not_bind_a_checkpoint() -> None:
    for kind in (TextFiles, ParquetFiles):
        assert kind("in", on_bad="stop").settings() == kind("in", on_bad="skip").settings()


def test_a_line_of_absurd_size_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "MOST_LINE_BYTES", 100_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"x" * 400_000 + b"\n")
    error = refused(TextFiles(str(tmp_path / "in"), chunk_bytes=1000), tmp_path)
    assert "100,000 bytes" in error.message


def csv(tmp_path: Path, **settings: Any) -> CsvFiles:
    return CsvFiles(str(tmp_path / "in"), label=None, numeric=("n",), categorical=("c",), **settings)


def test_csv_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n,c\n1,good\n2,b\xffd\n3,fine\n")
    assert [row["c"] for row in rows_of(csv(tmp_path), tmp_path)] == ["good", None, "fine"]
    assert "line 3" in refused(csv(tmp_path, on_bad="stop"), tmp_path).message


def test_a_text_in_place_of_a_list_of_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        CsvFiles(str(tmp_path), label=None, numeric="cents")  # type: ignore[arg-type]
    assert caught.value.column == "cents"


def test_json_lines_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b'{"c": "good"}\n{"c": "b\xffd"}\n')
    source = JsonFiles(str(tmp_path / "in"), categorical=("c",))
    assert [row["c"] for row in rows_of(source, tmp_path)] == ["good", "b\ufffdd"]
    assert "line 2" in refused(replace(source, on_bad="stop"), tmp_path).message


@pytest.mark.parametrize("on_bad", ["skip", "stop"])
def test_csv_that_is_not_utf8_is_no_matter_of_the_start(tmp_path: Path, on_bad: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(b"n,c\n1,b\xffd\n2,fine\n")
    csv(tmp_path, on_bad=on_bad).validate()


def test_csv_that_loses_a_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("c\nonly\n")
    assert rows_of(csv(tmp_path), tmp_path) == [{"n": None, "c": "only"}]
    error = refused(csv(tmp_path, on_bad="stop"), tmp_path)
    assert error.column == "n" and error.path.endswith("a.csv")


def test_a_header_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes("n,c\n1,x\n".encode("utf-16"))
    assert "line 1" in refused(csv(tmp_path), tmp_path).message


def test_parquet_that_loses_a_column(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "in" / "a.parquet")
    path = str(tmp_path / "in")
    assert refused(ParquetFiles(path, columns=("b", "a")), tmp_path).column == "b"
    found = rows_of(ParquetFiles(path, columns=("b", "a"), on_bad="skip"), tmp_path)
    assert found == [{"b": None, "a": 1}, {"b": None, "a": 2}]
