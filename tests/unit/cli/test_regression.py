"""``afspark run regression``: its options, and what bad input gets before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from afspark.cli.algorithm_options import REPLICATED, RegressionOptions
from afspark.cli.main import main
from afspark.cli.options import parse
from afspark.cli.regression_command import RegressionTask
from afspark.cli.tasks import task_of, tolerance_of
from afspark.errors import UsageError
from afspark.policies import Approximate, MiniBatch, UpstreamBackup
from afspark.policies.replication import SCHEMES
from afspark.sources import Clicks, CsvFiles, Higgs, LibsvmFiles, ParquetFiles

CSV = "age,job,label\n39,clerk,1\n52,cook,0\n"


def options(line: str) -> RegressionOptions:
    found = parse(["run", "regression", *line.split()])
    assert isinstance(found, RegressionOptions)
    return found


def task(line: str) -> RegressionTask:
    found = task_of(options(line))
    assert isinstance(found, RegressionTask)
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "people.csv"
    file.write_text(CSV)
    return file


def test_defaults() -> None:
    found = options("--generate clicks")
    assert found == RegressionOptions(algorithm="regression", data="clicks")
    assert task("--generate clicks --rows 7 --seed 3").source == Clicks(7, seed=3)
    assert task("--generate higgs --rows 7").source == Higgs(7, seed=1)


def test_tolerances() -> None:
    assert tolerance_of(options("--generate higgs")) == Approximate(10, items=1000)
    assert tolerance_of(options("--generate higgs --theta 1 --items 100")) == Approximate(1, items=100)
    assert tolerance_of(options("--generate higgs --tolerance minibatch")) == MiniBatch()
    assert [scheme.name for scheme in SCHEMES] == list(REPLICATED)
    for scheme in SCHEMES:
        given = options(f"--generate higgs --tolerance {scheme.name} --interval 4")
        assert tolerance_of(given) == scheme(interval=4.0)
    assert tolerance_of(options("--generate higgs --tolerance upstream")) == UpstreamBackup()


def test_files_of_every_format(table: Path, tmp_path: Path) -> None:
    source = task(f"--input {table} --numeric age --categorical job --on-bad stop").source
    assert source == CsvFiles(str(table), numeric=("age",), categorical=("job",), on_bad="stop")
    (tmp_path / "a.libsvm").write_text("1 1:2\n")
    assert task(f"--input {tmp_path}/a.libsvm --format libsvm").source == LibsvmFiles(f"{tmp_path}/a.libsvm")
    found = options(f"--input {tmp_path} --format parquet --numeric a,b --label y")
    from afspark.cli.regression_command import regression_task

    assert regression_task(found).source == ParquetFiles(str(tmp_path), columns=("y", "a", "b"))


def test_settings_reach_the_operator() -> None:
    operator = task("--generate clicks --slots 99 --rate 0.5 --merge-every 7 --on-bad stop --norm 3").operator
    assert (operator.features.slots, operator.features.norm, operator.rate) == (99, 3, 0.5)
    assert (operator.merge_every, operator.on_bad) == (7, "stop")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--generate cats",
        "--generate clicks --input x",
        "--generate clicks --format csv",
        "--generate clicks --numeric a",
        "--input x --rows 5",
        "--input x --format libsvm --numeric a",
        "--input x --format parquet --names a,b",
        "--input x --on-bad hide",
        "--generate clicks --rate 0",
        "--generate clicks --slots 0",
        "--generate clicks --tolerance minibatch --theta 3",
    ],
)
def test_what_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(UsageError):
        options(line)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("", "'job' is not numeric"),
        ("--numeric age,job", "'job' is not numeric"),
        ("--numeric height", "no column named 'height'"),
        ("--numeric age --label income", "no column named 'income'"),
        ("--numeric age --label job", "Say which label counts as 1: --positive, or in a program text_label=True"),
        ("--format libsvm", "None of the first 3 lines"),
    ],
)
def test_bad_columns_get_one_line_and_status_2(
    table: Path, capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    assert main(["run", "regression", "--input", str(table), *arguments.split()]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "regression", "--help"]) == 0
    told = capsys.readouterr().out
    for option in ("--generate", "--on-bad", "--verify", "--categorical", "--merge-every", "--items", "examples:"):
        assert option in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--consistency ssp:-1", "There is no consistency 'ssp:-1'. Use bsp, ssp:STEPS or asp."),
        ("--consistency ssp", "There is no consistency 'ssp'"),
        ("--consistency bsp --iteration 0", "--iteration"),
        ("--iteration 10", "--iteration says how many items a step has"),
        ("--consistency bsp --merge-every 2", "--merge-every is for models that are merged once a batch"),
        ("--consistency bsp --tolerance hot-standby", "cannot train a model together"),
        ("--plot a.png", "--plot shows how a model converges"),
        ("--consistency asp --plot a.txt", "'a.txt' is no picture"),
        ("--consistency asp --plot /dev/null/a.png", "--plot '/dev/null/a.png'"),
    ],
)
def test_bad_settings_of_training_get_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], arguments: str, says: str
) -> None:
    assert main(["run", "regression", "--generate", "clicks", *arguments.split()]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1
