"""What queries of tests and trials leave in shared memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.resident import scratch_folders
from afspark.resident.scratch_folders import scratch_folder, sweep_scratch

PREFIX = "afspark-scratch-of-a-test-"
KILLED = f"""
import os
from afspark.resident.scratch_folders import scratch_folder
with scratch_folder({PREFIX!r}) as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_has_left_goes_and_that_of_others_stays() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    left = Path(killed.stdout.strip())
    assert left.is_dir() and left.name.startswith(PREFIX), killed.stderr
    with scratch_folder(PREFIX) as mine:
        sweep_scratch(PREFIX)
        assert mine.is_dir() and not left.exists()
    assert not mine.exists()


def test_what_another_container_uses_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its processes cannot be seen from here."""
    with scratch_folder(PREFIX) as theirs:
        monkeypatch.setattr(scratch_folders, "_PROCESSES", tmp_path)
        sweep_scratch(PREFIX)
        assert theirs.is_dir()


def test_a_test_removes_what_a_killed_one_has_left() -> None:
    schema = pa.schema({"value": pa.large_string()})
    with testing.run(lambda lines: lines.apply(af.WordCount()), schema) as query:
        here = query._folder
        # Processes have no such numbers.
        left = here.with_name(f"{testing._PREFIX}99999999999-left")
        left.mkdir()
        with testing.run(lambda lines: lines.apply(af.WordCount()), schema):
            assert here.is_dir() and not left.exists()
