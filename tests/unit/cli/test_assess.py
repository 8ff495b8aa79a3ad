"""``afspark assess``: a newcomer's pipeline from a file, and what bad use gets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.csv as pacsv
import pytest

from afspark.cli import assess_command
from afspark.cli.assess_options import AssessOptions
from afspark.cli.main import main
from afspark.cli.options import parse
from tests.unit.lab.small_pipelines import rows

PROGRAM = """
import pyarrow as pa
import pyarrow.compute as pc

import afspark as af


class Newest(af.Operator):
    key = ("group",)

    def states(self):
        return {"newest": af.HashTable(key="int64", value="float64", operator_key=True)}

    def process(self, items, states):
        before = states["newest"].get(items.column("group"))
        states["newest"].put(items.column("group"), items.column("amount"))
        return pa.record_batch({"id": items.column("id"), "before": pa.array(before)})


def only_large(items):
    return items.filter(pc.greater(items.column("amount"), 10.0))


def pipeline(orders):
    return orders.map(only_large).apply(Newest(), name="newest", workers=2)


def largest(table):
    return pc.max(table["before"]).as_py()


def broken(table):
    return 1 / 0


def no_number(table):
    return float("nan")


class Moody(af.Operator):
    # What it sends depends on where batches end.

    def process(self, items, states):
        return items.set_column(2, "amount", pc.multiply(items.column("amount"), 1.0 + items.num_rows % 5))


def moody(orders):
    return orders.apply(Moody(), name="moody", workers=1)
"""

COMMON = ["--key", "id", "--outages", "30,120", "--offsets", "400,900", "--repetitions", "2", "--batch-items", "150"]
QUIET = ["--processes", "1", "--sample", "0", "--sections", "keys:id:100"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    program, items = tmp_path / "shop.py", tmp_path / "orders.csv"
    program.write_text(PROGRAM)
    pacsv.write_csv(rows(1_500), items)
    return str(program), str(items)


def test_a_pipeline_from_a_file_is_assessed(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, items = files
    out = tmp_path / "report"
    given = ["--input", items, "--score", "sum:before", "--other-score", "largest", "--out", str(out)]
    assert main(["assess", program, *given, *COMMON, *QUIET]) == 0
    document = json.loads((out / "report.json").read_text())
    assert list(document["targets"]) == ["source"]
    source = document["targets"]["source"]
    assert source["coq"] == pytest.approx(-1.0)
    assert source["stands_for"] == ["source", "newest"]
    assert set(document["orders"]) == {"sum:before", "largest"}
    assert (out / "report.html").exists() and not (out / "campaign").exists()
    shown = capsys.readouterr()
    assert "source" in shown.out and "trials: 8 of 8" in shown.err


def test_the_report_is_there_before_spark_is_started(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    program, items = files
    out = tmp_path / "report"
    monkeypatch.setattr(assess_command, "spark_session", interrupted)
    given = ["--input", items, "--score", "sum:before", "--out", str(out), "--no-rerun", "--quiet"]
    options = parse(["assess", program, *given, *COMMON, *QUIET, "--repetitions", "1", "--sample", "1"])
    assert isinstance(options, AssessOptions)
    with pytest.raises(KeyboardInterrupt):
        assess_command.assess(options)
    assert (out / "report.html").exists()


def test_a_pipeline_an_input_and_a_score_are_enough(files: tuple[str, str], tmp_path: Path) -> None:
    program, items = files
    out = tmp_path / "report"
    quick = ["--repetitions", "1", "--offsets", "0.5", "--no-rerun", "--processes", "1", "--sample", "0", "--quiet"]
    assert main(["assess", program, "--input", items, "--score", "sum:before", "--out", str(out), *quick]) == 0
    source = json.loads((out / "report.json").read_text())["targets"]["source"]
    assert [one["outage"]["items"] for one in source["by_outage"]] == [2, 8, 30]
    assert source["rlq"] is not None and source["ilq"] is not None


def test_without_java_there_is_a_report_and_a_note(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, items = files
    out = tmp_path / "report"
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    given = ["--input", items, "--score", "sum:before", "--out", str(out), "--no-rerun"]
    assert main(["assess", program, *given, *COMMON, *QUIET, "--repetitions", "1", "--sample", "1"]) == 0
    document = json.loads((out / "report.json").read_text())
    assert list(document["targets"]) == ["source"] and document["agreement"]["sampled"] == 0
    (note,) = document["notes"]
    assert "No trial was run again" in note and "no Java" in note and note in capsys.readouterr().out
    assert (out / "campaign").exists(), "what the same command goes on from"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--score", "broken"], "The score 'broken' raised ZeroDivisionError: division by zero."),
        (["--score", "no_number"], "is nan."),
        (["--score", "nothing"], "'nothing' is no score."),
        (["--score", "sum:nothing"], "The score 'sum:nothing' needs column 'nothing', and the output has id, before."),
        (["--sections", "keys:order:10"], "needs column 'order'"),
        (["--targets", "nobody"], "There is no target 'nobody'."),
        (["--offsets", "5000"], "An offset of 5,000 items is not within the input, which has 1,500."),
        (["--key", "order"], "needs column 'order'"),
        (["--seconds", "2"], "Seconds of an outage are so many items only at a known rate."),
    ],
)
def test_bad_use_gets_one_line(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: list[str], said: str
) -> None:
    program, items = files
    given = ["--input", items, "--score", "sum:before", "--out", str(tmp_path / "report"), "--quiet"]
    assert main(["assess", program, *given, *COMMON, *QUIET, *changed]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_only_functions_are_offered_as_scores(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, items = files
    given = ["--input", items, "--score", "nothing", "--out", str(tmp_path / "report"), "--quiet"]
    assert main(["assess", program, *given, *COMMON, *QUIET]) == 2
    offered = capsys.readouterr().err.split("your functions ")[1].strip(".\n").split(", ")
    assert offered == ["broken", "largest", "moody", "no_number", "only_large"]


def test_variance_that_hides_the_effect_is_told_with_the_repetitions_that_would_show_it(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, items = files
    given = ["--input", items, "--score", "sum:amount", "--out", str(tmp_path / "report"), "--no-rerun"]
    without_key = [*COMMON[2:], "--processes", "1", "--sample", "0"]
    assert main(["assess", f"{program}:moody", *given, *without_key]) == 0
    (told,) = [line for line in capsys.readouterr().out.splitlines() if "own variance hides the effect" in line]
    assert "repetitions and golden runs would show one of" in told


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["none.py", "--input", "x.csv", "--score", "count", "--outages", "5"], "There is no Python file 'none.py'"),
        (["shop.py", "--score", "count", "--outages", "5"], "--input is missing"),
        (["shop.py", "--input", "x.csv", "--outages", "5"], "--score is missing"),
        (["shop.py", "--input", "x.csv", "--score", "count", "--events", "5"], "is for the pipeline 'bargain' alone"),
        (["bargain", "--rate", "5"], "is no rate"),
    ],
)
def test_what_does_not_go_together_is_refused(
    argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assess", *argv, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_the_paper_s_experiment_needs_no_further_options() -> None:
    options = parse(["assess", "bargain", "--events", "5000000", "--seed", "1", "--out", "report"])
    assert isinstance(options, AssessOptions)
    assert options.events == 5_000_000 and options.repetitions == 5


@pytest.mark.parametrize("score", ["sum:gain", "count", "recall:key"])
def test_the_paper_s_experiment_is_scored_by_each_score_once(score: str) -> None:
    options = parse(["assess", "bargain", "--score", score])
    assert isinstance(options, AssessOptions)
    study = assess_command.bargain_study(options)
    assert study["score"] == score and score not in study["other_scores"]


def test_a_campaign_is_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(folder: Path, **settings: object) -> None:
        if folder.exists():
            raise KeyboardInterrupt

    (tmp_path / "campaign" / "trials").mkdir(parents=True)
    with monkeypatch.context() as patched:
        patched.setattr(assess_command.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            assess_command._remove(tmp_path / "campaign")
    assert not (tmp_path / "campaign").exists()
    (tmp_path / "campaign" / "trials").mkdir(parents=True)
    assess_command._remove(tmp_path / "campaign")
    assert not list(tmp_path.iterdir())
