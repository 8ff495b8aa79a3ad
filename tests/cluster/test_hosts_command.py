"""``afspark run --hosts``: real hosts for the length of a run, killed for real, and nothing of them afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from afspark.api.inspection import inspect
from afspark.cluster.loopback.loopback_cluster import host_names
from afspark.resident.segment_root import BASE_VARIABLE
from tests.cluster.machines import ROOT

SECONDS = 600
WORDS = "run wordcount --workers 2 --tolerance active-standby --quiet --hosts 2"
CONTROLLED = "run wordcount --workers 2 --tolerance adaptive --recovery-seconds 5 --quiet --hosts 3"
WITH_GAPS = "run wordcount --workers 2 --tolerance passive-replication --interval 3600 --gap --hosts 2"
KILLED = "--batch-size 500kB --kill 1 --seed 3 --away 1 --verify"


@contextmanager
def running(line: str, place: Path, stdout: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A run whose processes, all of them, have ``place`` in their environment."""
    temporary = place / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "afspark", *line.split()],
        start_new_session=True,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            "TMPDIR": str(temporary),
            BASE_VARIABLE: str(place / "segments"),
        },
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def processes(place: Path) -> dict[int, bytes]:
    """The living processes that have ``place`` in their environment, and their command lines."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(place).encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes()
    return found


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
def test_a_host_is_killed_in_a_run_and_the_counts_are_exact(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    line = f"{WORDS} --generate 4MB {KILLED} --json {report}"
    with running(line, tmp_path) as process:
        _, told = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, told
    found = json.loads(report.read_text())
    assert found["observed"]["state"] == 0 and found["bound"]["realised"] == 0
    (kill,) = found["hosts"]["kills"]
    assert kill["host"] in host_names(2) and kill["planned"]["batch"] <= kill["batches"] < found["batches"]
    (loss,) = kill["losses"]
    # On a busy machine the secondary may not be built yet; then the worker is restored, wherever there is a host.
    assert loss["host"] in set(host_names(2)) - ({kill["host"]} if loss["promoted"] else set())
    assert 0 < loss["detection_seconds"] < loss["recovered_seconds"]
    assert processes(tmp_path) == {} and not (tmp_path / "segments").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
def test_the_controller_decides_in_a_run_in_which_a_host_is_killed(tmp_path: Path) -> None:
    report, checkpoint = tmp_path / "report.json", tmp_path / "checkpoint"
    line = f"{CONTROLLED} --generate 8MB {KILLED} --checkpoint {checkpoint} --json {report}"
    with running(line, tmp_path) as process:
        _, told = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, told
    found = json.loads(report.read_text())
    assert found["observed"]["state"] == 0 and found["bound"] == found["bound"] | {"state": 0, "realised": 0}
    assert len(found["hosts"]["kills"]) == 1
    decisions = inspect(str(checkpoint)).decisions
    first = {one["worker"]: one for one in reversed(decisions)}
    assert set(first) == {0, 1} and {one["to"] for one in first.values()} == {"active-replication"}
    assert all(one["reason"] and one["candidates"] for one in decisions)


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
def test_what_a_gap_has_left_out_is_told_by_a_run(tmp_path: Path) -> None:
    """No checkpoint comes after the first: whoever is killed goes on from there."""
    report = tmp_path / "report.json"
    with running(f"{WITH_GAPS} --generate 4MB {KILLED} --json {report}", tmp_path, stdout=subprocess.PIPE) as process:
        shown, told = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, told
    found = json.loads(report.read_text())
    left_out = [entry for entry in found["ledger"] if entry["gap_batches"]]
    assert left_out and found["bound"]["state"] is None and found["bound"]["realised"] is None
    items = sum(entry["gap_items"] for entry in left_out)
    assert found["observed"]["state"] > 0 and items > 0
    assert "left out, not replayed" in shown and f"{items:,} items" in shown


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGTERM, id="stopped"), pytest.param(signal.SIGKILL, id="killed")],
)
def test_hosts_do_not_outlive_their_run(tmp_path: Path, number: signal.Signals) -> None:
    """A run that is asked to stop, and a driver that is killed."""
    checkpoint = tmp_path / "checkpoint"
    with running(f"{WORDS} --generate 2GB --batch-size 500kB --checkpoint {checkpoint}", tmp_path) as process:
        until(lambda: (checkpoint / "commits" / "0").exists() or process.poll() is not None)
        others = processes(tmp_path)
        for kind in (b"deploy.master.Master", b"deploy.worker.Worker", b"ExecutorBackend", b"cluster.spark.daemon"):
            assert any(kind in command for command in others.values()), kind
        states = list((tmp_path / "segments").glob(".hosts-*/*"))
        assert {state.name for state in states} >= set(host_names(2))
        process.send_signal(number)
        _, told = process.communicate(timeout=SECONDS)
        assert process.returncode == (128 + number if number == signal.SIGTERM else -number), told
        until(lambda: not processes(tmp_path))
    assert not (tmp_path / "segments").exists()
    if number == signal.SIGTERM:
        assert list((tmp_path / "tmp").iterdir()) == []
