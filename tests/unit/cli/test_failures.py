"""Errors on one line."""

from __future__ import annotations

import pytest

from afspark.cli import run as run_module
from afspark.cli.failures import GOES_ON, one_line, own_error, with_hint
from afspark.cli.follow import Interrupted
from afspark.cli.main import main
from afspark.errors import CheckpointError, InputError, StoreError, UsageError, WorkerFailed

LINE = ["run", "wordcount", "--generate", "1MB"]


def test_ours_inside_of_sparks() -> None:
    text = (
        "[STREAM_FAILED] Query terminated\n  File 'x', line 3\n"
        "afspark.errors.InputError: Input 'a.parquet' cannot be read. Repair it.\n\nJVM stacktrace: …"
    )
    found = own_error(RuntimeError(text))
    assert type(found) is InputError
    assert str(found) == "Input 'a.parquet' cannot be read. Repair it."


@pytest.mark.parametrize("text", ["", "ValueError: no", "afspark.errors.Nonsense: no", "afspark.errors.Any: no"])
def test_not_ours(text: str) -> None:
    assert own_error(RuntimeError(text)) is None


def test_hints_only_where_they_help() -> None:
    assert with_hint(InputError("a", remedy="b"), GOES_ON).remedy == f"b {GOES_ON}"
    assert with_hint(WorkerFailed("a", remedy="b"), GOES_ON).remedy == f"b {GOES_ON}"
    assert with_hint(UsageError("a", remedy="b"), GOES_ON).remedy == "b"
    assert with_hint(CheckpointError("a", remedy="b"), GOES_ON).remedy == "b"


class JavaError(Exception):
    """As py4j raises them."""

    __module__ = "py4j.protocol"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "An error occurred while calling o125.start.\n: com.a.JsonParseException: Unrecognized token 'x'\n"
            " at [Source: x]\n\tat com.a.B(C.java:1)\n\t... 3 more\n",
            "JsonParseException: Unrecognized token 'x'",
        ),
        (
            "An error occurred while calling o1.collect.\n: org.a.SparkException: Job aborted\n\tat a.B(C)\n"
            "Caused by: java.io.IOException: No space left on device\n\tat a.B(C)\n",
            "IOException: No space left on device",
        ),
        (
            "[STREAM_FAILED] Query [id = 9, runId = 7] terminated with exception: Failed to read log file offsets/8."
            " [MALFORMED_LOG_FILE] Log file was malformed. SQLSTATE: KD002 SQLSTATE: XXKST\nJVM stacktrace:\n\tat a.B",
            "Failed to read log file offsets/8. Log file was malformed.",
        ),
        (
            "[STREAM_FAILED] Query [id = 9] terminated with exception: Job aborted:\n"
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise X\nValueError: no such column\n'
            "\n\tat org.a.B(C.scala:1)\n",
            "ValueError: no such column",
        ),
    ],
    ids=["java", "cause", "stream", "python"],
)
def test_what_spark_says_is_one_short_line(text: str, told: str) -> None:
    assert one_line(JavaError(text)) == f"afspark: error: Spark has failed: {told}"


def test_lines_are_single() -> None:
    assert one_line(UsageError("two\nlines", remedy="and more")) == "afspark: error: two lines and more"
    assert one_line(RuntimeError("first\nsecond")) == "afspark: error: RuntimeError: first"


@pytest.mark.parametrize(
    ("raised", "status", "end"),
    [
        (StoreError("Broken.", remedy="Mend it."), 2, "afspark: error: Broken. Mend it.\n"),
        (RuntimeError("odd"), 1, "afspark: error: RuntimeError: odd Use --debug to see more.\n"),
        (KeyboardInterrupt(), 130, "afspark: stopped.\n"),
    ],
)
def test_status_of_what_goes_wrong(
    raised: BaseException, status: int, end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> int:
        raise raised

    monkeypatch.setattr(run_module, "run", fail)
    assert main(LINE) == status
    assert capsys.readouterr().err == end


@pytest.mark.parametrize(("more", "keeps"), [([], False), (["--checkpoint", "here"], True)])
def test_a_stopped_run_says_whether_it_can_go_on(
    more: list[str], keeps: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: object) -> int:
        raise Interrupted(15, batches=3)

    monkeypatch.setattr(run_module, "run", stop)
    assert main([*LINE, *more]) == 143
    assert (GOES_ON in capsys.readouterr().err) is keeps


def test_debug_shows_the_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("odd")

    monkeypatch.setattr(run_module, "run", fail)
    assert main([*LINE, "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err
