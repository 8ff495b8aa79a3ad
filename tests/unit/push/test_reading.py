"""Files and lines of every format into rows; what does not fit costs itself alone."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from afspark.errors import InputError, UsageError
from afspark.push.producer.file_input import Input, guess_format
from afspark.push.producer.fitting import Rows, fit
from afspark.push.producer.line_formats import CsvLines, JsonLines, TextLines, whole_lines
from afspark.push.producer.punctuating import Punctuator

SCHEMA = pa.schema(
    [pa.field("n", pa.int32(), nullable=False), ("x", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us"))]
)
WHEN = datetime(2024, 1, 2, 3, 4, 5)
ROWS = [
    {"n": 1, "x": 0.5, "s": "a", "t": WHEN},
    {"n": 2, "x": None, "s": 'quote " and, comma', "t": None},
    {"n": 3, "x": -1.0, "s": "two\nlines", "t": WHEN},
]
CSV = b'n,x,s,t\n1,0.5,a,2024-01-02 03:04:05\n2,,"quote "" and, comma",\n3,-1.0,"two\nlines",2024-01-02 03:04:05\n'
JSONL = (
    b'{"n": 1, "x": 0.5, "s": "a", "t": "2024-01-02 03:04:05", "more": [1]}\n'
    b'{"n": 2, "s": "quote \\" and, comma"}\n'
    b'{"n": 3, "x": -1.0, "s": "two\\nlines", "t": "2024-01-02 03:04:05"}\n'
)


def everything(path: Path, schema: pa.Schema = SCHEMA, **options: bool) -> tuple[list[dict[str, object]], int]:
    given = Input(path=str(path), format=guess_format(str(path)), **options)  # type: ignore[arg-type]
    rows = list(given.rows(schema))
    assert all(each.batch.schema.equals(schema) for each in rows)
    return [row for each in rows for row in each.batch.to_pylist()], sum(each.bad for each in rows)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "parquet", "arrow", "arrows", "wide.parquet"])
def test_each_format_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    match kind:
        case "csv":
            path.write_bytes(CSV)
        case "csv.gz":
            path.write_bytes(gzip.compress(CSV))
        case "jsonl":
            path.write_bytes(JSONL)
        case "parquet":
            parquet.write_table(table, path)
        case "wide.parquet":  # other order, other types, one more column
            wide = table.append_column("more", pa.array([1, 2, 3])).select(["more", "t", "s", "n", "x"])
            parquet.write_table(wide.set_column(3, "n", wide["n"].cast(pa.int64())), path)
        case "arrow":
            feather.write_feather(table, str(path), compression="uncompressed")
        case "arrows":
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
                writer.write_table(table, max_chunksize=2)
    assert everything(path) == (ROWS, 0)


def test_bad_rows_of_csv_cost_themselves_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = ["n,x,s,t", "1,1,a,", "two,2,b,", "3,3", "4,4,d,not a time", ",5,e,", " 6 ,6,f,", "7,7,g,2024-01-02"]
    path.write_text("\n".join(lines))
    found, bad = everything(path)
    assert [row["n"] for row in found] == [1, 6, 7] and bad == 4


@pytest.mark.parametrize(
    "line",
    ["null", '{"n": 1} null', '{"n": "x"}', '{"n": 1.5}', "[1]", '{"n"', "nonsense", '{"x": 1}', '{"n": null}', "7"],
)
def test_bad_lines_of_json_cost_themselves_alone(line: str) -> None:
    block = "".join(f'{{"n": {n}, "s": "}} null"}}\n' for n in range(10)) + line + '\n\n{"n": 10}\n'
    rows = JsonLines(SCHEMA)(block.encode())
    assert rows.batch["n"].to_pylist() == list(range(11))
    assert rows.bad == 1 and rows.example


def test_all_lines_bad() -> None:
    assert JsonLines(SCHEMA)(b"{\n" * 5).bad == 5
    assert CsvLines(SCHEMA, SCHEMA.names)(b"x,y,z,t\n" * 5).bad == 5


def test_what_is_no_text_is_replaced() -> None:
    schema = pa.schema([("s", pa.string())])
    assert TextLines(schema)(b"a\xffb\r\n\nc").batch["s"].to_pylist() == ["a\ufffdb", "", "c"]
    assert JsonLines(schema)(b'{"s": "\xff"}\n').batch["s"].to_pylist() == ["\ufffd"]
    assert CsvLines(schema, ["s"])(b"\xff\n").batch["s"].to_pylist() == ["\ufffd"]


def test_csv_without_a_line_of_names(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(CSV.split(b"\n", 1)[1])
    assert everything(path, header=False) == (ROWS, 0)


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_missing_column_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("n,x,t\n1,1,\n")
    else:
        parquet.write_table(pa.table({"n": [1], "x": [1.0], "t": [WHEN]}), path)
    with pytest.raises(InputError) as caught:
        everything(path)
    assert caught.value.missing == ["s"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_damaged_file_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    path.write_bytes(b"damaged" * 100)
    with pytest.raises(InputError) as caught:
        everything(path)
    assert caught.value.path == str(path)


def test_formats_are_guessed_or_asked_for() -> None:
    assert [guess_format(name) for name in ("a.CSV", "b.ndjson.zst", "c.feather")] == ["csv", "jsonl", "arrow"]
    for name in ("-", "a", "a.gz", "a.exe"):
        with pytest.raises(UsageError):
            guess_format(name)


def test_lines_are_never_cut() -> None:
    data = b'1,"a\n""b"\n2,c\n' * 50
    for size in (1, 2, 3, 7, 1000):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        blocks = list(whole_lines(iter(chunks), quoted=True))
        assert b"".join(blocks) == data
        assert all(block.endswith(b"\n") and block.count(b'"') % 2 == 0 for block in blocks)


def test_casts_lose_nothing() -> None:
    schema = pa.schema([("n", pa.int8())])
    rows: Rows = fit(pa.table({"n": [1.0, 1.5, 300.0, None, -2.0]}), schema)
    assert rows.batch["n"].to_pylist() == [1, None, -2] and rows.bad == 2
    with pytest.raises(InputError):
        fit(pa.table({"n": [[1]]}), schema)


def test_punctuation_where_the_column_passes_a_multiple() -> None:
    at = Punctuator("t", 10)
    found = [
        (piece["t"].to_pylist(), time)
        for values in ([1, 9, 10, 5, None, 35], [36], [40, 41])
        for piece, time in at.cut(pa.record_batch({"t": pa.array(values, pa.int64())}))
    ]
    assert found == [
        ([1, 9], 10.0), ([10, 5, None], 30.0), ([35], None), ([36], None), ([], 40.0), ([40, 41], None),
    ]  # fmt: skip
    stamps = pa.array([datetime(1970, 1, 1, 0, 0, 59, tzinfo=UTC), datetime(1970, 1, 1, 0, 1, tzinfo=UTC)])
    minutes = Punctuator("t", 60).cut(pa.record_batch({"t": stamps.cast(pa.timestamp("ns", "UTC"))}))
    assert [time for _, time in minutes] == [60.0, None]
