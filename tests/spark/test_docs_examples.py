"""Every Python example of the pages runs: as it is, or after what its page takes for granted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from afspark.resident.segment_root import BASE_VARIABLE
from tests.docs_examples import PAGES, ROOT, programs

RUN = [page for page in PAGES if list(programs(page))]
#: The first page that anybody reads; the others take longer.
FIRST = "README.md"
SECONDS = 600


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page.name == FIRST else [pytest.mark.thorough], id=page.name) for page in RUN],
)
def test_the_examples_of_a_page_run(tmp_path: Path, page: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs_examples", str(page)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(tmp_path), os.environ["PYTHONPATH"]]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(tmp_path),
            BASE_VARIABLE: str(tmp_path / "segments"),
        },
    )
    assert done.returncode == 0, done.stderr[-8000:]
