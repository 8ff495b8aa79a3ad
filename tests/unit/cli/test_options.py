"""The command line as a whole: defaults, and what does not go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from afspark._version import __version__
from afspark.cli import values
from afspark.cli.algorithm_options import DEFAULT_COSTS, DEFAULT_RECOVERY_SECONDS, CommandOptions
from afspark.cli.algorithm_tables import ALGORITHMS
from afspark.cli.application_tables import APPLICATIONS
from afspark.cli.main import main
from afspark.cli.options import DemoOptions, parse
from afspark.cli.tasks import tolerance_of
from afspark.errors import UsageError
from afspark.policies import Adaptive, Costs
from afspark.policies.replication import SCHEMES


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
        "run wordcount --generate 1MB --recovery-seconds 5",
        "run wordcount --generate 1MB --costs cpu=1",
        "run wordcount --generate 1MB --tolerance adaptive --recovery-seconds 0",
        "run wordcount --generate 1MB --tolerance adaptive --recovery-seconds soon",
        "run wordcount --generate 1MB --tolerance adaptive --costs gpu=1",
        "run wordcount --generate 1MB --tolerance adaptive --costs cpu=-1",
        "run wordcount --generate 1MB --tolerance adaptive --costs cpu",
        "run wordcount --generate 1MB --tolerance adaptive --costs cpu=1,cpu=2",
        "run wordcount --generate 1MB --tolerance adaptive --interval 2",
        "run wordcount --generate 1MB --gap",
        "run wordcount --generate 1MB --tolerance snapshot --gap",
        "run wordcount --generate 1MB --tolerance minibatch --gap",
        "run wordcount --generate 1MB --tolerance none --gap",
        "run wordcount --generate 1MB --tolerance active-standby --gap 2",
        "run regression --generate higgs --tolerance upstream --gap",
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


@pytest.mark.parametrize(
    "line", ["assess --help", "savepoint --help", "plan --help", "run smartgrid --help", "run bargain --help"]
)
def test_descriptions_are_wrapped(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    told = capsys.readouterr().out.split("\n\n")
    assert max(map(len, told[1].splitlines())) < 80


@pytest.mark.parametrize("name", [one.name for one in (*ALGORITHMS, *APPLICATIONS)])
def test_help_fits_a_terminal_and_breaks_no_name(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["run", name, "--help"]) == 0
    lines = capsys.readouterr().out.partition("\nexamples:")[0].splitlines()
    assert [line for line in lines if len(line) > 80 or line.endswith("-")] == []
    assert [line for line in lines[lines.index("options:") + 1 :] if line][1].endswith(":"), "only --help has no group"


def test_a_limit_for_recovery_becomes_a_tolerance() -> None:
    line = "run wordcount --generate 1MB --tolerance adaptive --recovery-seconds 2.5 --costs cpu=2,hosts=0 --theta 7"
    options = parse(line.split())
    assert isinstance(options, CommandOptions)
    assert tolerance_of(options) == Adaptive(recovery_seconds=2.5, costs=Costs(cpu=2, hosts=0), theta=7)


@pytest.mark.parametrize("name", [*(scheme.name for scheme in SCHEMES), Adaptive.name])
def test_a_gap_may_be_asked_for_where_there_is_one(name: str) -> None:
    line = f"run wordcount --generate 1MB --tolerance {name}"
    precise, leaving = (parse(f"{line} {gap}".split()) for gap in ("", "--gap"))
    assert isinstance(precise, CommandOptions) and isinstance(leaving, CommandOptions)
    assert tolerance_of(precise).exact and not tolerance_of(precise).leaves_gap
    assert tolerance_of(leaving) == replace(tolerance_of(precise), gap=True)
    assert tolerance_of(leaving).leaves_gap and tolerance_of(leaving).promise() is None


def test_what_the_command_line_says_of_defaults_is_true() -> None:
    options = parse(["run", "wordcount", "--generate", "1MB", "--tolerance", "adaptive"])
    assert isinstance(options, CommandOptions) and tolerance_of(options) == Adaptive()
    assert Adaptive().recovery_seconds == DEFAULT_RECOVERY_SECONDS
    assert Costs(**dict(values.costs(DEFAULT_COSTS))) == Costs()
    assert tuple(Costs().to_json()) == values.COSTS
