"""What is told of a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from afspark.cli.quiet import first_error

NOISE = "WARNING: Using incubator modules\n26/01/01 WARN Utils: an Error is near\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NOISE, ""),
        ("", ""),
        (f"{NOISE}Invalid maximum heap size: -Xmx1x\nError: Could not create\n", "Invalid maximum heap size: -Xmx1x"),
        (f'{NOISE}Exception in thread "main" a.B: no master\n\tat a.Error(x)\n', "a.B: no master"),
        ("\tat org.apache.error(SparkSubmit.scala:1)\nError: last\n", "Error: last"),
        ("a.SparkException: Exception thrown in awaitResult: \n\tat a.B\nCaused by: b.C: no host\n", "b.C: no host"),
    ],
)
def test_the_line_that_tells(tmp_path: Path, text: str, line: str) -> None:
    log = tmp_path / "log"
    log.write_text(text)
    assert first_error(log) == line


def test_no_log(tmp_path: Path) -> None:
    assert first_error(tmp_path / "none") == ""
