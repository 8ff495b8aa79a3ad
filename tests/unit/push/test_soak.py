"""Ten seeded runs with real kills, five of them in `make test`; ``python -m tests.soak`` does a hundred."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("seeds", ["1-2", pytest.param("0-9", marks=pytest.mark.thorough)])
def test_no_kill_breaks_the_promise_about_pushed_items(seeds: str) -> None:
    """In a process of its own, because what Flight leaves in this one does not survive a fork."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--seeds", seeds],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all kept their promises" in done.stdout
