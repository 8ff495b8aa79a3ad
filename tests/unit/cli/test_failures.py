"""Errors on one line."""

from __future__ import annotations

import signal

import pytest

from afspark.api.query import Totals
from afspark.cli import run as run_module
from afspark.cli.failures import CUT_SHORT, GOES_ON, one_line, own_error, with_hint
from afspark.cli.follow import Interrupted, ended_with_spark, follow
from afspark.cli.main import main
from afspark.cli.progressbar import Lines, RunProgress, display_for
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
        (
            "[STREAM_FAILED] Query [id = 9] terminated with exception: Python worker failed to connect back. SQLSTATE:"
            " XXKST\n\tat org.a.B(C.scala:1)\n",
            "Python worker failed to connect back. Spark waits ten seconds for a Python process to start, which can be"
            " too short on a busy machine: start again.",
        ),
    ],
    ids=["java", "cause", "stream", "python", "slow"],
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
        (RuntimeError("odd"), 1, "afspark: error: RuntimeError: odd. Use --debug to see more.\n"),
        (RuntimeError("Odd."), 1, "afspark: error: RuntimeError: Odd. Use --debug to see more.\n"),
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


@pytest.mark.parametrize(("more", "told"), [([], False), (["--checkpoint", "here"], True)])
def test_a_stop_that_has_ended_spark_first_says_what_was_not_done(
    more: list[str], told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_: object) -> int:
        raise Interrupted(15, batches=3, orderly=False)

    monkeypatch.setattr(run_module, "run", stop)
    assert main([*LINE, *more]) == 143
    line = capsys.readouterr().err
    assert (f"{CUT_SHORT} {GOES_ON}" in line) is told and line.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(111, "Connection refused"), True),
        (JavaError("Answer from Java side is empty"), True),
        (JavaError("Traceback …\nafspark.errors.InputError: File 'a' is damaged."), False),
        (StoreError("Broken."), False),
        (RuntimeError("odd"), False),
    ],
)
def test_what_is_left_of_spark_after_a_stop_is_no_failure(error: Exception, expected: bool) -> None:
    assert ended_with_spark(error) is expected


class Ending:
    """A query that gets a signal while it is awaited, and then cannot be asked any more."""

    totals = Totals()

    def __init__(self, number: int | None) -> None:
        self.number = number

    def awaitTermination(self, timeout: float) -> bool:
        if self.number is not None:
            signal.raise_signal(self.number)
        raise ConnectionRefusedError


def test_only_whoever_was_asked_to_stop_has_stopped() -> None:
    with pytest.raises(Interrupted) as caught, display_for(quiet=True) as display:
        follow(Ending(signal.SIGTERM), display)  # type: ignore[arg-type]
    assert (caught.value.signal, caught.value.orderly) == (signal.SIGTERM, False)
    with pytest.raises(ConnectionRefusedError), display_for(quiet=True) as display:
        follow(Ending(None), display)  # type: ignore[arg-type]


def test_a_line_that_says_nothing_new_is_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.begin("wordcount", 100)
    for now in (RunProgress(), RunProgress(), RunProgress(bytes=50, batches=1, seconds=1.0)):
        lines._next = 0.0
        lines.show(now)
    assert [line.partition(" · ")[0] for line in capsys.readouterr().err.splitlines()] == [
        "wordcount: first batch …",
        "wordcount: 50 B of 100 B",
    ]
