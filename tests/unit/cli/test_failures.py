"""Errors on one line."""

from __future__ import annotations

import pytest

from afspark.cli import run as run_module
from afspark.cli.failures import GOES_ON, one_line, own_error, with_hint
from afspark.cli.follow import Interrupted
from afspark.cli.main import main
from afspark.errors import InputError, StoreError, UsageError, WorkerFailed

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
