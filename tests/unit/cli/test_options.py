"""The command line as a whole: defaults, and what does not go together."""

from __future__ import annotations

import pytest

from afspark._version import __version__
from afspark.cli.algorithm_options import CommandOptions
from afspark.cli.main import main
from afspark.cli.options import DemoOptions, parse
from afspark.errors import UsageError


def test_defaults_of_a_run() -> None:
    assert parse(["run", "wordcount", "--generate", "1MB"]) == CommandOptions(
        algorithm="wordcount", generate=1_000_000, workers=2, tolerance="approximate", top=10, seed=1
    )


def test_everything_given() -> None:
    line = (
        "run heavy-hitters --input flows --format parquet --keys a,b --weight c --threshold 1e9 --rows 5 "
        "--columns 100 --workers 3 --tolerance approximate --theta 7 --batch-size 1MiB --kill 2 --seed 9 --verify "
        "--master local[3] --checkpoint ck --takeover --output out --json j --quiet --top 3 "
        "--conf spark.a=b --conf spark.c=d"
    )
    assert parse(line.split()) == CommandOptions(
        algorithm="heavy-hitters",
        input="flows",
        format="parquet",
        keys=("a", "b"),
        weight="c",
        threshold=10**9,
        rows=5,
        columns=100,
        workers=3,
        theta=7,
        batch_size=2**20,
        kill=2,
        seed=9,
        verify=True,
        master="local[3]",
        checkpoint="ck",
        takeover=True,
        output="out",
        json="j",
        quiet=True,
        top=3,
        conf=(("spark.a", "b"), ("spark.c", "d")),
    )


def test_demo() -> None:
    assert parse(["demo"]) == DemoOptions(size=None, out="out", failures=4)
    assert parse(["demo", "--size", "1MB", "--out", "x", "--conf", "spark.a=1"]) == DemoOptions(
        size=1_000_000, out="x", conf=(("spark.a", "1"),)
    )


@pytest.mark.parametrize(
    "line",
    [
        "",
        "fly",
        "run",
        "run pagerank --generate 1MB",
        "run wordcount",
        "run wordcount --input a --generate 1MB",
        "run wordcount --generate 1MB --format text",
        "run wordcount --generate 1MB --theta nan",
        "run wordcount --generate 1MB --theta -1",
        "run wordcount --generate 1MB --theta 1 --tolerance minibatch",
        "run wordcount --generate 1MB --theta 1 --tolerance upstream",
        "run wordcount --generate 1MB --tolerance hope",
        "run wordcount --generate 1MB --workers 0",
        "run wordcount --generate 1MB --kill -1",
        "run wordcount --generate 0",
        "run wordcount --generate 1MB --batch-size 0",
        "run wordcount --generate 1MB --conf speculation",
        "run wordcount --generate 1MB --keys a",
        "run heavy-hitters --generate 1MB --threshold 0",
        "run heavy-hitters --generate 1MB --threshold nan",
        "run heavy-hitters --generate 1MB --rows 0",
        "run heavy-hitters --generate 1MB --lower",
        "run heavy-hitters --input a --keys b --weight c",
        "run heavy-hitters --input a --weight c --threshold 1",
    ],
)
def test_what_makes_no_sense_is_one_line_and_status_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError):
        parse(line.split())
    assert main(line.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("afspark: error: ") and told.err.count("\n") == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"afspark {__version__}\n"


@pytest.mark.parametrize("line", ["--help", "run --help", "run wordcount --help", "run heavy-hitters -h", "demo -h"])
def test_help_has_examples_or_commands(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    assert "afspark" in capsys.readouterr().out
