"""Files of JSON lines: every line once, bad ones as nulls, errors of one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import InputError, UsageError
from afspark.sources import CsvFiles, JsonFiles, Source, source_from_json
from tests.unit.sources.conftest import DictStore


def rows(source: Source) -> list[dict[str, Any]]:
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    return pa.Table.from_batches(
        [batch for chunk in chunks for batch in source.read(chunk)], source.schema()
    ).to_pylist()


def written(path: Path, *lines: object) -> str:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(path)


def test_fields_are_read_by_name_and_every_line_once(tmp_path: Path) -> None:
    objects = [{"text": f"n\u00e4 {number}\n", "t": number, "more": [1, {"a": None}]} for number in range(500)]
    path = written(tmp_path / "a.jsonl", *objects)
    for size in (1 << 20, 1_000, 37):
        source = JsonFiles(path, numeric=("t",), categorical=("text",), chunk_bytes=size)
        assert rows(source) == [{"t": float(one["t"]), "text": one["text"]} for one in objects]
    assert source_from_json(source.to_json()) == source


def test_lines_that_cannot_be_read_are_rows_of_nulls(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl", {"t": 1, "text": "a"}, "{", {"t": "soon", "text": "b"}, "", {"text": "c"}, "null"
    )
    source = JsonFiles(path, numeric=("t",), categorical=("text",))
    source.validate()
    found = rows(source)
    assert [row for row in found if row["text"]] == [{"t": 1.0, "text": "a"}, {"t": None, "text": "c"}]
    assert len(found) == 5
    with pytest.raises(InputError) as caught:
        rows(JsonFiles(path, numeric=("t",), categorical=("text",), on_bad="stop"))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("lines", "part"),
    [
        (["a,b", "1,2"], "None of the first 2 lines"),
        ([{"a": 1, "text": "x"}], "has the field 't'"),
        ([{"t": "1", "text": "x"}], "None of the first 1 lines"),
    ],
)
def test_files_without_what_is_asked_for(lines: list[object], part: str, tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *lines)
    with pytest.raises(UsageError, match=part):
        JsonFiles(path, numeric=("t",), categorical=("text",)).validate()
    with pytest.raises(UsageError):
        JsonFiles(path)
    with pytest.raises(UsageError, match="exist"):
        JsonFiles(str(tmp_path / "none"), numeric=("t",)).validate()


def test_csv_files_need_no_label(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,text\n1,a\nsoon,b\n")
    source = CsvFiles(str(tmp_path), label=None, numeric=("t",), categorical=("text",))
    source.validate()
    assert rows(source) == [{"t": 1.0, "text": "a"}, {"t": None, "text": "b"}]
    assert source_from_json(source.to_json()) == source
