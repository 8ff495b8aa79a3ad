"""What queries leave in the memory of a machine, and when that is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from afspark.resident import SegmentRoot
from afspark.resident.segment_root import BASE_VARIABLE
from tests.spark.conftest import ROOT

SECONDS = 120
HOUR = 3_600.0

SCRIPT = """
import os, sys
import afspark as af

spark = af.session("local[2]", config={"spark.ui.enabled": "false"})
counted = af.read_stream(spark).words(400_000).apply(af.WordCount(), tolerance=af.Approximate(theta=1e9))
writer = counted.writeStream.option("batchBytes", 100_000)
writer = writer.option("checkpointLocation", sys.argv[2]) if sys.argv[2:] else writer

def after(rows, batch):
    if sys.argv[1] == "killed" and batch == 1:
        os.kill(os.getpid(), 9)

query = writer.foreachBatch(after).trigger(availableNow=True).start()
query.awaitTermination()
assert query.results().count()
"""


def ran(place: Path, *arguments: str) -> SegmentRoot:
    """The states on this machine after a script has ended, or was killed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ["PYTHONPATH"]]),
            "TMPDIR": str(place),
            BASE_VARIABLE: str(place / "segments"),
        },
    )
    assert done.returncode == (-signal.SIGKILL if arguments[0] == "killed" else 0), done.stderr
    return SegmentRoot(place / "segments", "any")


def states(root: SegmentRoot) -> list[Path]:
    return sorted(root.base.glob("*/*/*-[0-9]"))


@pytest.mark.thorough
def test_a_query_without_a_checkpoint_leaves_nothing(tmp_path: Path) -> None:
    assert states(ran(tmp_path, "ends")) == []


@pytest.mark.thorough
def test_a_query_with_a_checkpoint_leaves_its_state_for_the_next_start(tmp_path: Path) -> None:
    assert len(states(ran(tmp_path, "ends", str(tmp_path / "checkpoint")))) == 2


@pytest.mark.thorough
def test_what_a_killed_query_without_a_checkpoint_leaves_is_removed_by_the_next_one(tmp_path: Path) -> None:
    root = ran(tmp_path, "killed")
    left = states(root)
    assert len(left) == 2 and root.clean() == [], "somebody may still want it"
    assert root.clean(now=time.time() + 1.1 * HOUR) == left and states(root) == []


@pytest.mark.thorough
def test_what_a_killed_query_with_a_checkpoint_leaves_is_kept(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    root = ran(tmp_path, "killed", checkpoint)
    assert len(states(root)) == 2 and root.clean(now=time.time() + 1000 * HOUR) == []
    assert len(states(ran(tmp_path, "ends", checkpoint))) == 2
