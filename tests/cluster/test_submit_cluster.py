"""``spark-submit`` to a standalone cluster: counted there, stopped, and continued on hosts without any state."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from afspark.cluster.loopback.loopback_cluster import LoopbackCluster
from tests.cluster.conftest import Driver
from tests.cluster.machines import HOSTS
from tests.spark.submitting import SECONDS, said, submitted, until, write_input

#: What the page about deployment says, and less memory.
OPTIONS = (
    *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
)
STANDBY = "ActiveStandby(batches=50)"


@pytest.fixture(autouse=True)
def _free_slots(_driver: Driver) -> None:
    """The driver of other tests holds all of them as long as it lives."""
    _driver.stop()


def to(machines: LoopbackCluster, *more: str) -> tuple[str, ...]:
    for host in HOSTS:
        machines.start(host)
    for host in HOSTS:
        machines.await_ready(host)
    return ("--master", machines.url, *OPTIONS, *more)


def states(machines: LoopbackCluster) -> list[Path]:
    return [machines.state_of(host) for host in HOSTS if machines.state_of(host).is_dir()]


@pytest.mark.thorough
def test_a_program_is_submitted_to_a_cluster(machines: LoopbackCluster, tmp_path: Path) -> None:
    truth = write_input(tmp_path)
    options = to(machines, "--total-executor-cores", "4", "--conf", "spark.locality.wait=9s")
    with submitted(tmp_path, "MiniBatch()", "now", options=options) as process:
        found = said(process)
    assert found["counts"] == truth
    assert found["settings"]["spark.master"] == machines.url
    assert found["settings"]["spark.cores.max"] == "4" and found["wait"] == "9s"


@pytest.mark.thorough
@pytest.mark.parametrize("tolerance", [STANDBY, "Approximate(theta=1e9)", "HotStandby(batches=50)"])
def test_all_hosts_are_replaced_after_a_planned_stop(machines: LoopbackCluster, tmp_path: Path, tolerance: str) -> None:
    truth = write_input(tmp_path, files=12)
    options = to(machines)
    commits = tmp_path / "checkpoint" / "commits"
    with submitted(tmp_path, tolerance, "100 milliseconds", options=options) as process:
        until(lambda: (commits / "1").exists() or process.poll() is not None)
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 128 + signal.SIGTERM, errors
    kept = states(machines)
    assert any(any(state.rglob("counts-*")) for state in kept), "there was state to be lost"
    for state in kept:
        shutil.rmtree(state)
    with submitted(tmp_path, tolerance, "now", options=options) as process:
        found = said(process)
    assert found["counts"] == truth and found["bound"] == 0
    assert not any(found["counted"])
