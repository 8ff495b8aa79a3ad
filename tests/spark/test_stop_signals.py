"""Signals to a driver with a JVM of its own, as supervisors, terminals and kernels send them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from afspark.api.inspection import inspect
from afspark.cli.failures import GOES_ON
from afspark.cluster.spark.spark_host import alive_parents
from afspark.resident.segment_root import BASE_VARIABLE
from tests.spark.conftest import ROOT

SECONDS = 120


@contextmanager
def running(checkpoint: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in a process group of its own, whose first batch is committed and which would go on for long."""
    line = "run wordcount --generate 2GB --batch-size 500kB --workers 1 --tolerance snapshot --interval 3600 --quiet"
    process = subprocess.Popen(
        [sys.executable, "-m", "afspark", *line.split(), "--checkpoint", str(checkpoint)],
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            BASE_VARIABLE: str(checkpoint.parent / "segments"),
        },
    )
    try:
        until(lambda: (checkpoint / "commits" / "0").exists() or process.poll() is not None)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def below(pid: int) -> list[int]:
    """The living processes that come from ``pid``."""
    return [one for one in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid in alive_parents(one)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "whom"),
    [
        (signal.SIGTERM, "all"),
        pytest.param(signal.SIGINT, "group", marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, "group", marks=pytest.mark.thorough),
        pytest.param(signal.SIGINT, "all", marks=pytest.mark.thorough),
    ],
)
def test_a_stop_for_all_processes_is_orderly(tmp_path: Path, number: signal.Signals, whom: str) -> None:
    """A terminal and ``timeout`` ask the process group, systemd whoever comes from the driver."""
    checkpoint = tmp_path / "checkpoint"
    with running(checkpoint) as process:
        others = below(process.pid)
        assert len(others) > 1
        if whom == "group":
            os.killpg(process.pid, number)
        else:
            for pid in (process.pid, *others):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        _, told = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + number, told
        assert GOES_ON in told and told.count("\n") == 1
    found = inspect(checkpoint)
    assert found.batch == found.spark_batch, "the last snapshot has all of it"
    until(lambda: not any(Path("/proc", str(pid)).exists() for pid in others))


SCRIPT = """
import sys
import afspark as af
from afspark.algorithms import WordCount

place, trigger = sys.argv[1], {"availableNow": True} if sys.argv[2:] else {"processingTime": "200 milliseconds"}
spark = af.session("local[2]")
words = af.read_stream(spark).text(f"{place}/input")
counted = words.apply(WordCount(), workers=2, tolerance=af.Approximate(theta=1e9))
writer = counted.writeStream.option("checkpointLocation", f"{place}/checkpoint").option("batchBytes", 4000)
query = writer.trigger(**trigger).start()
query.awaitTermination()
print({row["word"]: row["count"] for row in query.results().collect()})
print([entry["counted"] for entry in query.ledger()], query.bounds())
"""


def script(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(place), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            BASE_VARIABLE: str(place / "segments"),
        },
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)], ids=lambda one: one.name
)
def test_a_script_that_is_stopped_goes_on_exactly_on_new_hosts(tmp_path: Path, number: signal.Signals) -> None:
    """Nothing was ever backed up by its policy. Then all hosts are replaced."""
    (tmp_path / "input").mkdir()
    for file in range(6):
        (tmp_path / "input" / f"{file}.txt").write_text(f"all file{file}\n" * 100)
    commits = tmp_path / "checkpoint" / "commits"
    process = script(tmp_path)
    try:
        until(lambda: (commits / "1").exists() or process.poll() is not None)
        process.send_signal(number)
        _, told = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    expected = 128 + number if number is signal.SIGTERM else (-number, 128 + number, 1)
    assert process.returncode in (expected if isinstance(expected, tuple) else (expected,)), told
    shutil.rmtree(tmp_path / "segments")
    again = script(tmp_path, "availableNow")
    out, told = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, told
    counts, ledger = out.strip().splitlines()[-2:]
    assert eval(counts) == {"all": 600, **{f"file{file}": 100 for file in range(6)}}
    assert ledger.startswith("[False, False]"), ledger


@pytest.mark.thorough
def test_no_jvm_outlives_its_driver(tmp_path: Path) -> None:
    with running(tmp_path / "checkpoint") as process:
        others = below(process.pid)
        assert others
        process.kill()
        process.wait()
        until(lambda: not any(Path("/proc", str(pid)).exists() for pid in others))
