"""The applications as commands over a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from afspark.cli.main import main


@pytest.fixture(scope="module", autouse=True)
def one_session_for_all(spark: SparkSession) -> SparkSession:
    return spark


def run(tmp_path: Path, line: str) -> tuple[dict[str, Any], Any]:
    """The report of a run that was verified, and its results."""
    report, out = tmp_path / "run.json", tmp_path / "out"
    assert main([*line.split(), "--verify", "--quiet", "--json", str(report), "--output", str(out)]) == 0
    document: dict[str, Any] = json.loads(report.read_text())
    assert document["observed"]["state"] <= document["bound"]["realised"] <= document["bound"]["state"]
    assert document["accuracy"]["outside"] == 0 and document["accuracy"]["compared"] >= document["results"]["count"]
    assert len(document["ledger"]) >= 2 and document["skipped"] == 0
    return document, pq.read_table(out)


@pytest.mark.thorough
def test_sentiment_under_failures(tmp_path: Path) -> None:
    document, rows = run(tmp_path, "run sentiment --generate 1.6MB --seconds 24 --kill 1 --theta 1000")
    assert document["observed"]["state"] > 0 and document["late"] == 0
    assert document["input"]["items"] == 20_000
    names = ["window_start", "window_end", "keyword", "texts", "score", "mean", "bound_texts", "bound_score", "bound"]
    assert rows.column_names == names
    # A window at either end of the stream may hold fewer texts than a failure may take.
    assert {*range(10, 25)} <= set(rows.column("window_end").to_pylist()) <= {*range(1, 34)}


@pytest.mark.thorough
def test_predictions_under_failures(tmp_path: Path) -> None:
    line = "run smartgrid --generate 1.85MB --houses 4 --slices 30,120 --kill 1 --theta 40"
    document, rows = run(tmp_path, line)
    assert document["input"]["items"] == 50_000
    assert set(rows.column("minutes").to_pylist()) == {30, 120}
    assert document["accuracy"]["mean_error"] < document["accuracy"]["mean_load"]
    assert document["results"]["top"][0]["minutes"] == 120


@pytest.mark.thorough
def test_bargains_under_failures(tmp_path: Path) -> None:
    document, rows = run(tmp_path, "run bargain --generate 2.4MB --symbols 100 --kill 1 --theta 2")
    assert document["input"]["items"] == 50_000
    assert {entry["operator"] for entry in document["ledger"]} >= {"Aggregator", "BargainIndex"}
    assert rows.column_names == ["key", "time", "ticker", "ask_price", "ask_size", "average", "gain"]
    assert len(set(rows.column("key").to_pylist())) == len(rows) == document["results"]["count"] > 1000
    assert document["accuracy"]["gain"] == pytest.approx(sum(rows.column("gain").to_pylist()))
    assert document["results"]["top"][0]["gain"] == max(rows.column("gain").to_pylist())


@pytest.mark.thorough
def test_bargains_are_exact_under_snapshots(tmp_path: Path) -> None:
    document, _ = run(tmp_path, "run bargain --generate 2.4MB --symbols 100 --kill 1 --tolerance snapshot")
    assert document["observed"]["state"] == 0
    assert document["accuracy"]["gain"] == document["accuracy"]["exact_gain"]
