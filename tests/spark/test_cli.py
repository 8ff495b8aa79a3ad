"""The command line over a real Spark, in this process where one session serves all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from afspark.cli import run as run_module
from afspark.cli.failures import GOES_ON
from afspark.cli.main import main
from afspark.cli.progressbar import Display, RunProgress
from afspark.cluster.spark.anchors import driver_host
from afspark.resident import SegmentRoot
from afspark.store import open_store
from afspark.store.format import unseal
from afspark.store.naming import IDENTITY

WORDS = ["run", "wordcount"]
HITTERS = ["run", "heavy-hitters"]


@pytest.fixture(scope="module", autouse=True)
def one_session_for_all(spark: SparkSession) -> SparkSession:
    return spark


@pytest.fixture
def checkpoint(tmp_path: Path, spark: SparkSession) -> Iterator[str]:
    """A checkpoint whose resident state is removed afterwards."""
    path = tmp_path / "checkpoint"
    yield str(path)
    identity = unseal(open_store(path).below("afspark").get(IDENTITY), IDENTITY).meta["identity"]
    SegmentRoot(None, driver_host(spark.sparkContext)).release(identity["query_id"])


def refused(line: list[str], capsys: pytest.CaptureFixture[str], *parts: str) -> str:
    """Asserts status 2, nothing on the output and one line of error; returns it."""
    capsys.readouterr()
    assert main([*line, "--quiet"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("afspark: error: ") and told.err.count("\n") == 1, told.err
    for part in parts:
        assert part in told.err
    return told.err


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_words_under_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, out = tmp_path / "run.json", tmp_path / "out"
    line = [*WORDS, "--generate", "6MB", "--kill", "2", "--theta", "2000", "--verify", "--top", "3"]
    assert main([*line, "--json", str(report), "--output", str(out)]) == 0
    document = load(report)
    assert document["input"]["bytes"] == 6_000_000
    assert document["batches"] == document["settings"]["planned_batches"] >= 6
    assert {loss["worker"] for loss in document["ledger"]} == {0, 1}
    assert all(loss["recovery_seconds"] > 0 and 0 < loss["theta"] <= 500 for loss in document["ledger"])
    assert 0 < document["observed"]["state"] <= document["bound"]["realised"] <= document["bound"]["state"] == 2000
    assert document["backups"]["state"]["count"] > 0
    table = pq.read_table(out)
    assert table.column_names == ["word", "count"]
    assert len(table) == document["results"]["count"]
    assert max(table.column("count").to_pylist()) == document["results"]["top"][0]["count"]
    told = capsys.readouterr()
    assert "Recoveries" in told.out and document["results"]["top"][2]["word"] in told.out
    assert "Traceback" not in told.err


@pytest.mark.thorough
def test_heavy_hitters_under_failures(tmp_path: Path) -> None:
    report, out = tmp_path / "run.json", tmp_path / "out"
    line = [*HITTERS, "--generate", "24MB", "--kill", "2", "--verify", "--quiet"]
    assert main([*line, "--json", str(report), "--output", str(out)]) == 0
    document = load(report)
    assert document["input"]["items"] == 1_000_000
    assert document["accuracy"]["recall"] == 1.0
    assert document["accuracy"]["precision"] > 0.9
    assert 0 < document["observed"]["state"] <= document["bound"]["realised"] <= document["bound"]["state"] == 100_000
    table = pq.read_table(out)
    assert table.column_names == ["src", "dst", "estimate", "bound"]
    assert len(table) == document["accuracy"]["reported"] > 10


def test_files_with_words_of_any_bytes(tmp_path: Path) -> None:
    texts = [b"To be or not TO be\n" * 50, "naïve\u00a0x \x1cZ\n".encode() * 7, b"\xff\xfe [b] \x00\n"]
    folder, out, report = tmp_path / "in", tmp_path / "out", tmp_path / "run.json"
    folder.mkdir()
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(text)
    line = [*WORDS, "--input", str(folder), "--lower", "--verify", "--quiet", "--output", str(out)]
    assert main([*line, "--json", str(report)]) == 0
    assert load(report)["observed"]["state"] == 0
    rows = pq.read_table(out)
    words = rows.column("word").cast(pa.binary()).to_pylist()
    expected: Counter[bytes] = Counter()
    for text in texts:
        expected.update(text.lower().split())
    assert dict(zip(words, rows.column("count").to_pylist(), strict=True)) == expected


def test_files_with_fractional_weights(tmp_path: Path) -> None:
    table = pa.table({"who": ["a", "b", "a", None], "share": [1.5, 0.25, 2.0, 9.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    report = tmp_path / "run.json"
    line = [*HITTERS, "--input", str(tmp_path), "--keys", "who", "--weight", "share", "--threshold", "3"]
    assert main([*line, "--verify", "--quiet", "--json", str(report)]) == 0
    assert {row["who"]: row["estimate"] for row in load(report)["results"]["top"]} == {"a": 3.5, None: 9.0}


class StopAfterOneBatch(Display):
    """Presses Ctrl-C once."""

    def __init__(self, *, quiet: bool) -> None:
        self.pressed = not quiet

    def show(self, now: RunProgress) -> None:
        if now.batches and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_stops_between_batches_and_the_same_command_goes_on(
    tmp_path: Path, checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "run.json"
    line = [*WORDS, "--generate", "5MB", "--batch-size", "600kB", "--verify", "--quiet", "--json", str(report)]
    line += ["--checkpoint", checkpoint]
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "display_for", StopAfterOneBatch)
        assert main(line) == 130
    told = capsys.readouterr()
    assert GOES_ON in told.err and told.err.count("\n") == 1
    assert not report.exists()
    # A stop can come between the end of a batch and Spark's note of it; Spark then runs the batch again.
    newest = max((Path(checkpoint) / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).name
    (Path(checkpoint) / "commits" / newest).unlink(missing_ok=True)
    assert main(line) == 0
    document = load(report)
    assert document["resumed"]
    assert document["observed"]["state"] == 0
    capsys.readouterr()
    assert main(line) == 0
    again = load(report)
    assert again["batches"] == 0 and again["results"] == document["results"] and again["observed"]["state"] == 0
    refused([*line, "--lower"], capsys, "checkpoint", "another pipeline")


def test_damaged_input_names_the_file_and_keeps_the_state(
    tmp_path: Path, checkpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = pa.table({"k": list(range(5000)), "w": [1] * 5000})
    for name in ("a", "b"):
        pq.write_table(rows, folder / f"{name}.parquet", write_page_checksum=True, use_dictionary=False)
    sound = (folder / "b.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(sound[:200] + bytes(64) + sound[264:])
    line = [*HITTERS, "--input", str(folder), "--keys", "k", "--weight", "w", "--threshold", "2"]
    assert GOES_ON not in refused(line, capsys, "b.parquet")
    lasting = [*line, "--checkpoint", checkpoint]
    refused(lasting, capsys, "b.parquet", GOES_ON)
    (folder / "b.parquet").write_bytes(sound)
    report = tmp_path / "run.json"
    assert main([*lasting, "--quiet", "--verify", "--json", str(report)]) == 0
    assert load(report)["results"]["count"] == 5000


@pytest.fixture
def flows(tmp_path: Path) -> Path:
    folder = tmp_path / "flows"
    folder.mkdir()
    table = pa.table({"src": [1, 2], "name": ["a", "b"], "tags": [[1], [2]], "bytes": [5, -1]})
    pq.write_table(table, folder / "a.parquet")
    return folder


@pytest.mark.parametrize(
    ("keys", "weight", "part"),
    [
        ("src", "size", "size"),
        ("source", "bytes", "source"),
        ("src", "name", "name"),
        ("tags", "bytes", "tags"),
        ("src", "bytes", "negative"),
    ],
)
def test_columns_that_do_not_fit(
    flows: Path, keys: str, weight: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*HITTERS, "--input", str(flows), "--keys", keys, "--weight", weight, "--threshold", "1"]
    refused([*line, "--on-bad", "stop"], capsys, part)


def test_input_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "_hidden").write_text("x")
    (tmp_path / "empty.txt").touch()
    refused([*WORDS, "--input", str(tmp_path)], capsys, "no file with data")
    refused([*WORDS, "--input", str(tmp_path / "none")], capsys, "does not exist")
    refused([*WORDS, "--input", str(tmp_path / "_hidden"), "--format", "parquet"], capsys, "readable Parquet")


def test_places_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    for option in ("--checkpoint", "--output", "--json"):
        refused([*WORDS, "--generate", "1MB", option, str(file / "below")], capsys, "file")
    refused([*WORDS, "--generate", "1MB", "--json", str(tmp_path)], capsys, "folder")
    refused([*WORDS, "--generate", "1MB", "--output", str(tmp_path)], capsys, "'file'")
    refused(["demo", "--out", str(file)], capsys, "file")


def test_what_spark_cannot_do(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    refused([*WORDS, "--generate", "1MB", "--conf", "spark.speculation=true"], capsys, "speculation")
    refused([*WORDS, "--generate", "1MB", "--workers", "999"], capsys, "999", "slots")
    refused([*WORDS, "--generate", "100kB", "--kill", "3"], capsys, "3 failures")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    refused([*WORDS, "--generate", "1MB"], capsys, "Java")


@pytest.mark.thorough
def test_a_process_of_its_own_says_nothing_but_what_was_asked_for(tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    line = [*WORDS, "--generate", "2MB", "--kill", "2", "--quiet", "--json", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "afspark.cli.main", *line], capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(load(report)["ledger"]) >= 4


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--size", "4MB", "--failures", "1", "--out", str(tmp_path / "out")]) == 0
    document = load(tmp_path / "out" / "demo.json")
    assert set(document) == {"none", "minibatch", "approximate"}
    assert {name: run["bound"]["state"] for name, run in document.items()} == {
        "none": None,
        "minibatch": 0,
        "approximate": 10_000,
    }
    assert document["none"]["bound"]["realised"] is None
    assert document["minibatch"]["bound"]["realised"] == document["minibatch"]["observed"]["state"] == 0
    assert document["approximate"]["observed"]["state"] <= 10_000
    assert document["none"]["observed"]["state"] > 0
    cells = {name: run["backups"]["state"]["cells"] for name, run in document.items()}
    assert cells["none"] == 0 < cells["approximate"] < cells["minibatch"]
    assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000
    assert "promised" in capsys.readouterr().out
