"""``afspark run bargain``: its options, what it refuses, and its exact recount, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pytest

from afspark.cli.application_options import BargainOptions
from afspark.cli.main import main
from afspark.cli.options import parse
from afspark.cli.planning import plan
from afspark.cli.tasks import task_of
from afspark.errors import UsageError
from afspark.report.bargain_accuracy import bargain_errors
from afspark.report.recount_bargains import exact_bargains
from afspark.sources import CsvFiles, MarketEvents, ParquetFiles
from afspark.sources.market_files import write_events
from tests.twins import market_twin as twin
from tests.unit.cli.refusal import refused

SOURCE = MarketEvents(20_000, seed=3, symbols=60)


def events(source: Any = SOURCE) -> list[pa.RecordBatch]:
    return [batch for chunk in plan(source, workers=1).chunks for batch in source.read(chunk)]


def test_options() -> None:
    assert parse(["run", "bargain", "--generate", "1MB"]) == BargainOptions(algorithm="bargain", generate=1_000_000)
    task = task_of(parse(["run", "bargain", "--generate", "4.8MB", "--seed", "3", "--symbols", "60"]))
    assert task.source == MarketEvents(100_000, seed=3, symbols=60)


@pytest.mark.parametrize(
    "line",
    [
        "run bargain",
        "run bargain --generate 10",
        "run bargain --generate 1MB --symbols 0",
        "run bargain --generate 1MB --names a,b",
        "run bargain --generate 1MB --format csv",
        "run bargain --input a --symbols 3",
        "run bargain --input /nowhere/at/all",
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        task_of(parse(line.split()))
    refused(line, capsys)


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "bargain", "--help"]) == 0
    told = capsys.readouterr().out
    assert "afspark run bargain --generate" in told and "--symbols" in told and "--verify" in told


def test_events_of_files(tmp_path: Path) -> None:
    table = pa.Table.from_batches(events()).slice(0, 2_000)
    write_events(table, tmp_path / "a.parquet")
    pv.write_csv(table, tmp_path / "a.csv")
    expected = exact_bargains(table.to_batches())
    for name, kind in (("parquet", ParquetFiles), ("csv", CsvFiles)):
        task = task_of(parse(["run", "bargain", "--input", str(tmp_path / f"a.{name}"), "--format", name]))
        assert isinstance(task.source, kind)
        found = exact_bargains(events(task.source))
        assert found.bargains.equals(expected.bargains) and found.averages.equals(expected.averages)


@pytest.mark.parametrize(("head", "part"), [("time,ticker", "load_events"), ("key,time", "'price'")])
def test_files_that_do_not_fit(head: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text(f"{head}\n{','.join('1' * len(head.split(',')))}\n")
    refused(f"run bargain --input {tmp_path}", capsys, part)


def test_the_recount_is_that_of_the_twin() -> None:
    rows = pa.Table.from_batches(events())
    known: dict[str, float] = {}
    expected = twin.bargains(rows.to_pylist(), known)
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    for given in (rows, shuffled):
        exact = exact_bargains(given.to_batches())
        found = {row["key"]: row["gain"] for row in exact.bargains.to_pylist()}
        assert found == {key: one.gain for key, one in expected.items()} and len(found) > 1000
        assert dict(zip(*exact.averages.to_pydict().values(), strict=True)) == known


def test_events_that_are_unusable_are_left_out_of_the_recount() -> None:
    rows = pa.Table.from_batches(events()).slice(0, 3_000)
    doubled = rows.to_pylist()
    for place, wrong in enumerate(
        ({"ticker": None}, {"type": "split"}, {"price": -1.0, "type": "trade"}, {"ask_size": 0, "type": "quote"})
    ):
        doubled.insert(100 * place, doubled[100 * place] | wrong)
    kinds = pa.schema([field.with_nullable(True) for field in rows.schema])
    spoilt = pa.Table.from_pylist(doubled, kinds)
    assert exact_bargains(spoilt.to_batches()).bargains.equals(exact_bargains(rows.to_batches()).bargains)


def test_nothing_has_no_bargains() -> None:
    exact = exact_bargains([])
    assert (exact.bargains.num_rows, exact.averages.num_rows) == (0, 0)
    found = bargain_errors(exact.bargains, exact.averages, exact, bound=0.0)
    assert (found.average, found.rows, found.outside, found.gain) == (0, 0, 0, 0)


def test_bargains_are_compared_with_exact_ones() -> None:
    exact = exact_bargains(events())
    same = bargain_errors(exact.bargains, exact.averages, exact, bound=0.0)
    assert (same.average, same.outside, same.rows) == (0, 0, len(exact.bargains)) and same.gain == same.exact_gain > 0
    rows, averages = exact.bargains.to_pylist(), exact.averages.to_pylist()
    rows[3]["gain"] += 0.5 * rows[3]["ask_size"]
    rows[4]["gain"] += 0.125 * rows[4]["ask_size"]
    rows.append({"key": 10**9, "ask_size": 100, "gain": 30.0})
    averages[2]["average"] -= 0.375
    del averages[7]
    found = bargain_errors(pa.Table.from_pylist(rows), pa.Table.from_pylist(averages), exact, bound=0.25)
    assert (found.outside, found.rows) == (2, len(exact.bargains) + 1)
    assert found.average == exact.averages.column("average")[7].as_py()
    assert bargain_errors(pa.Table.from_pylist(rows[:-5]), exact.averages, exact, bound=0.5).rows == len(exact.bargains)
