"""Options of sentiment and smartgrid, what they refuse, and their exact recounts, without Spark."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afspark.algorithms.load_readings import COLUMNS
from afspark.algorithms.load_slices import CELL, keys_of, packed
from afspark.cli.application_options import SentimentOptions, SmartGridOptions
from afspark.cli.main import main
from afspark.cli.options import parse
from afspark.cli.planning import plan
from afspark.cli.tasks import CountedTask, task_of
from afspark.errors import UsageError
from afspark.report.load_accuracy import load_errors
from afspark.report.recount import merge
from afspark.report.recount_loads import CELL_NAMES
from afspark.report.window_accuracy import window_errors
from afspark.sources import CsvFiles, JsonFiles, ParquetFiles, Posts, SmartPlugs
from tests.twins import loads_twin
from tests.twins.loads_twin import Place, Reading
from tests.unit.cli.refusal import refused

TWEETS = [
    {"when": 0.5, "body": "I love #spark", "who": 7},
    {"when": 1.5, "body": "flink is not good", "who": 8},
    {"when": 1.75, "body": "spark and flink", "who": 7},
    {"when": None, "body": "spark", "who": 7},
    {"when": 12, "body": None, "who": 7},
]
FILES = "--keywords spark,flink --text body --time when"


def options(line: str) -> Any:
    return parse(line.split())


def counted(line: str) -> Any:
    task = task_of(options(line))
    assert isinstance(task, CountedTask)
    return task


def recounted(task: Any) -> pa.Table:
    """The exact totals, counted in two shares."""
    chunks = plan(task.source, workers=2, batch_bytes=1_000_000).chunks
    return merge([task.recount(chunks[::2]), task.recount(chunks[1::2])], list(task.keys))


@pytest.fixture
def tweets(tmp_path: Path) -> dict[str, Path]:
    """The same texts in three formats."""
    folder = tmp_path / "tweets"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in TWEETS))
    lines = [",".join("" if value is None else f'"{value}"' for value in row.values()) for row in TWEETS]
    (folder / "a.csv").write_text("\n".join(["when,body,who", *lines]))
    (folder / "b.csv").write_text("\n".join(line.replace(",", ";") for line in lines))
    pq.write_table(pa.Table.from_pylist(TWEETS), folder / "a.parquet")
    return {name: folder / name for name in ("a.jsonl", "a.csv", "b.csv", "a.parquet")}


def test_defaults() -> None:
    sentiment = options("run sentiment --generate 1MB")
    assert sentiment == SentimentOptions(algorithm="sentiment", generate=1_000_000)
    assert (sentiment.window, sentiment.slide, sentiment.delay, sentiment.end) == (10, 1, 0, False)
    assert options("run smartgrid --generate 1MB") == SmartGridOptions(algorithm="smartgrid", generate=1_000_000)


def test_everything_given() -> None:
    line = "run sentiment --input a --format jsonl --keywords x,#y --text t --time w --by who --window 4 --slide 2"
    some = options(f"{line} --delay 1.5 --lexicon l --on-bad stop --checkpoint c --end")
    assert (some.keywords, some.text, some.time, some.by, some.lexicon) == (("x", "#y"), "t", "w", "who", "l")
    assert (some.window, some.slide, some.delay, some.on_bad, some.end) == (4, 2, 1.5, "stop", True)
    some = options("run smartgrid --input a --names a,b --delimiter ; --slices 5,60 --days 3 --largest 3000")
    assert (some.slices, some.days, some.largest, some.names, some.delimiter) == ((5, 60), 3, 3000, ("a", "b"), ";")


def test_generated_input() -> None:
    posts = task_of(options("run sentiment --generate 8MB --seconds 60 --seed 3"))
    assert posts.source == Posts(100_000, seed=3, seconds=60)
    plugs = task_of(options("run smartgrid --generate 3.7MB --houses 4 --generated-days 2 --seed 3"))
    assert plugs.source == SmartPlugs(100_000, seed=3, houses=4, days=2)


@pytest.mark.parametrize(
    "line",
    [
        "run sentiment",
        "run sentiment --generate 10",
        "run sentiment --input a",
        "run sentiment --input a --keywords x --seconds 5",
        "run sentiment --input a --keywords x --format jsonl --names t",
        "run sentiment --input /nowhere/at/all --keywords x",
        "run sentiment --generate 1MB --text t",
        "run sentiment --generate 1MB --format csv",
        "run sentiment --generate 1MB --delimiter ;",
        "run sentiment --generate 1MB --keywords a-b",
        "run sentiment --generate 1MB --by mood",
        "run sentiment --generate 1MB --by mean",
        "run sentiment --generate 1MB --window 10 --slide 3",
        "run sentiment --generate 1MB --slide 0",
        "run sentiment --generate 1MB --lexicon /nowhere/at/all",
        "run sentiment --generate 1MB --end",
        "run smartgrid --generate 10",
        "run smartgrid --generate 1MB --slices 7",
        "run smartgrid --generate 1MB --slices 0",
        "run smartgrid --generate 1MB --slices 5,5",
        "run smartgrid --generate 1MB --days 0",
        "run smartgrid --generate 1MB --largest 0",
        "run smartgrid --generate 1MB --names a,b",
        "run smartgrid --input a --houses 3",
        "run smartgrid --input a --generated-days 3",
        "run smartgrid --input /nowhere/at/all",
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        task_of(options(line))
    refused(line, capsys)


@pytest.mark.parametrize("name", ["sentiment", "smartgrid"])
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", name, "--help"]) == 0
    told = capsys.readouterr().out
    assert f"afspark run {name}" in told and "--on-bad" in told and "--verify" in told


@pytest.mark.parametrize(
    ("file", "flags"),
    [
        ("a.jsonl", "--format jsonl"),
        ("a.csv", ""),
        ("b.csv", "--names when,body,who --delimiter ;"),
        ("a.parquet", "--format parquet"),
    ],
)
def test_texts_of_files(tweets: dict[str, Path], file: str, flags: str) -> None:
    task = counted(f"run sentiment --input {tweets[file]} {FILES} --by who {flags}")
    assert isinstance(task.source, {"jsonl": JsonFiles, "csv": CsvFiles, "parquet": ParquetFiles}[file[2:]])
    totals = recounted(task).to_pylist()
    texts = {(row["pane"], row["keyword"], row["who"]): row["total"] for row in totals if row["what"] == "texts"}
    assert texts == {(0, "spark", "7"): 1, (1, "flink", "8"): 1, (1, "spark", "7"): 1, (1, "flink", "7"): 1}
    scores = {(row["pane"], row["keyword"], row["who"]): row["total"] for row in totals if row["what"] == "score"}
    assert scores[0, "spark", "7"] > 0 > scores[1, "flink", "8"] and scores[1, "spark", "7"] == scores[1, "flink", "7"]


def test_times_may_be_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,text\n1970-01-01T00:00:05Z,spark\n1970-01-01 00:00:07,spark\nsoon,spark\n")
    totals = recounted(counted(f"run sentiment --input {path} --keywords spark --slide 1")).to_pylist()
    assert {row["pane"] for row in totals} == {5, 7}


@pytest.mark.parametrize(
    ("name", "text", "flags", "part"),
    [
        ("a.csv", "time,body\n1,x\n", "", "'text'"),
        ("a.csv", "", "", "no file with data"),
        ("a.csv", "text,time\nx,1\n", "--by who", "'who'"),
        ("a.jsonl", "time,text\n1,x\n", "--format jsonl", "no JSON object"),
        ("a.jsonl", '{"time": 1}\n', "--format jsonl", "'text'"),
        ("a.jsonl", '{"time": 1, "text": 5}\n', "--format jsonl", "can be read"),
        ("a.parquet", "nothing", "--format parquet", "readable Parquet"),
    ],
)
def test_files_that_do_not_fit(
    name: str, text: str, flags: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    refused(f"run sentiment --input {tmp_path} --keywords x {flags}", capsys, part)


def test_readings_of_files_with_and_without_a_line_of_names(tmp_path: Path) -> None:
    rows = [(1, 1377986401, 68.451, 1, 0, 0, 0), (2, 1377986401, 19.927, 0, 0, 0, 0), (3, 1377986461, 10.0, 1, 2, 1, 5)]
    lines = [",".join(map(str, row)) for row in rows]
    plain, named = tmp_path / "plain.csv", tmp_path / "named.csv"
    plain.write_text("\n".join(lines))
    named.write_text("\n".join([",".join(reversed(COLUMNS)), *(",".join(reversed(line.split(","))) for line in lines)]))
    found = [recounted(counted(f"run smartgrid --input {path} --slices 1")).to_pylist() for path in (plain, named)]
    for totals in found:
        loads = {(row["house"], row["household"], row["plug"]): row["total"] for row in totals if row["what"] == "load"}
        assert loads == {(0, 0, 0): pytest.approx(68.451 / 256, abs=1e-5), (5, 1, 2): 10 / 256}
        assert sum(row["total"] for row in totals if row["what"] == "readings") == 2


def test_readings_with_texts_for_times(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    row = {
        "timestamp": "1970-01-01T01:00:30Z",
        "value": 8,
        "property": 1,
        "plug_id": 0,
        "household_id": 0,
        "house_id": 0,
    }
    path.write_text(json.dumps(row))
    task = counted(f"run smartgrid --input {path} --format jsonl --slices 60")
    assert {(row["slice"], row["what"]): row["total"] for row in recounted(task).to_pylist()} == {
        (1, "load"): 8 / 256,
        (1, "readings"): 1,
    }


@pytest.mark.parametrize(
    ("text", "part"),
    [("a,b\n1,2\n", "'value'"), ("1,2,3\n", "'value'"), (",".join(COLUMNS) + "\n1,2,x,1,1,1,1\n", "'value'")],
)
def test_readings_that_do_not_fit(text: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(text)
    refused(f"run smartgrid --input {tmp_path}", capsys, part)


def window_rows(task: Any, totals: list[dict[str, Any]]) -> pa.Table:
    """Windows as the query would have handed them over."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in totals:
        for window in range(row["pane"], row["pane"] + task.window.panes):
            empty = {"window_end": window + 1.0, "keyword": row["keyword"], "texts": 0, "score": 0.0}
            one = found.setdefault((window, row["keyword"]), empty)
            one[row["what"]] += row["total"]
    bounds = {"bound_texts": 2.0, "bound_score": 0.5}
    return pa.Table.from_pylist([row | bounds | {"texts": int(row["texts"])} for row in found.values()])


def test_windows_are_compared_with_exact_ones() -> None:
    task = counted("run sentiment --generate 160kB --seconds 30")
    exact = recounted(task)
    rows = window_rows(task, exact.to_pylist())
    same = window_errors(rows, exact, task.window, [], ended=True)
    assert (same.texts, same.score, same.outside) == (0, pytest.approx(0, abs=1e-9), 0) and same.rows == len(rows) > 90
    changed = rows.to_pylist()
    changed[3]["texts"] -= 2
    changed[4]["texts"] -= 3
    changed[5]["score"] += 0.75
    found = window_errors(pa.Table.from_pylist(changed), exact, task.window, [], ended=True)
    assert (found.texts, found.score, found.outside) == (3, pytest.approx(0.75), 2)
    # A row that is not there has lost all its texts; windows that are still open are not missed.
    few = pa.Table.from_pylist([row for row in rows.to_pylist() if row["window_end"] < 20])
    assert window_errors(few, exact, task.window, [], ended=False).texts == 0
    assert window_errors(few, exact, task.window, [], ended=True).texts > 2


def test_loads_are_compared_with_exact_ones() -> None:
    task = counted("run smartgrid --generate 300kB --houses 2 --generated-days 3 --slices 30,120 --days 2")
    exact = recounted(task)
    chunks = plan(task.source, workers=1).chunks
    table = pa.Table.from_batches([batch for chunk in chunks for batch in task.source.read(chunk)])
    loads = [row for row in table.to_pylist() if row["property"] == 1]
    readings = [
        Reading(
            row["timestamp"], row["house_id"], row["household_id"], row["plug_id"], round(row["value"] * 1024) / 1024
        )
        for row in loads
    ]
    twin = loads_twin.forecasts(readings, (30, 120), 2)
    told = [
        {**place._asdict(), **one._asdict(), "low": one.prediction - 0.5, "high": one.prediction + 0.5}
        for place, one in twin.items()
    ]
    totals: dict[tuple[int, ...], dict[str, float]] = {}
    for row in exact.to_pylist():
        totals.setdefault(tuple(row[name] for name in CELL_NAMES), {})[row["what"]] = row["total"]
    columns = dict(zip(CELL_NAMES, np.array(list(totals)).T, strict=True))
    sums = pa.table(
        {
            "key": packed(keys_of(CELL, **columns)),
            **{name: [one[name] for one in totals.values()] for name in ("load", "readings")},
        }
    )
    found = load_errors(sums, _typed(told), exact, task.operator)
    assert (found.readings, found.load, found.outside, found.predictions) == (0, 0, 0, len(told))
    assert 0 < found.mean_error < found.mean_load
    told[0]["prediction"] += 100
    told[1]["low"] += 1
    sums = sums.set_column(2, "readings", pa.array([value.as_py() + 3 for value in sums.column("readings")]))
    found = load_errors(sums, _typed(told), exact, task.operator)
    assert (found.readings, found.outside) == (3, 1)


def _typed(rows: list[dict[str, Any]]) -> pa.Table:
    whole = {name: pa.int64() for name in (*Place._fields, "days")}
    kinds = whole | dict.fromkeys(("load", "past", "prediction", "low", "high"), pa.float64())
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def test_nothing_to_compare() -> None:
    task = counted("run smartgrid --generate 1kB")
    exact = task.recount([])
    sums = pa.table(
        {"key": packed(np.zeros(0, CELL)), "load": pa.array([], pa.float64()), "readings": pa.array([], pa.int64())}
    )
    found = load_errors(sums, _typed([]), exact, task.operator)
    assert (found.predictions, found.outside, found.readings) == (0, 0, 0) and math.isnan(found.mean_error)
