"""What a command line that makes no sense must get."""

from __future__ import annotations

import pytest

from afspark.cli.main import main


def refused(line: str, capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    """Asserts status 2, nothing on the output, and one line of error that has these parts."""
    assert main(line.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("afspark: error: ") and told.err.count("\n") == 1, told.err
    for part in parts:
        assert part in told.err
