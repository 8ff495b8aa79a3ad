"""One cluster for all tests of this folder, and a driver that is replaced when it has died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from afspark.cluster.loopback.loopback_cluster import LoopbackCluster
from afspark.cluster.loopback.loopback_hosts import python_paths
from tests.cluster.machines import FOLDER_VARIABLE, HOSTS, ROOT
from tests.spark.streams import Place


class Driver:
    """A driver process that carries out requests."""

    def __init__(self, machines: LoopbackCluster, log: Path) -> None:
        self.machines, self.log = machines, log
        self._process: subprocess.Popen[str] | None = None

    def run(self, place: Place, tolerance: Sequence[Any] = (), **request: Any) -> dict[str, Any]:
        """Carries out a request; the empty answer of a driver that died is an empty dict."""
        process = self._alive()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"place": str(place.root), "tolerance": list(tolerance), **request}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.stop()
            return {}
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.cluster.driver", self.machines.url],
                    env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": python_paths()},
                    cwd=self.log.parent,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        return self._process


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    os.environ[FOLDER_VARIABLE] = str(folder)
    # Python processes of executors import from the tests as well.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(paths).split(os.pathsep)))
    with LoopbackCluster(HOSTS, slots=2, folder=folder) as started:
        yield started


@pytest.fixture(scope="session")
def _driver(machines: LoopbackCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(machines, tmp_path_factory.mktemp("driver") / "log")
    yield driver
    driver.stop()


@pytest.fixture
def driver(_driver: Driver, machines: LoopbackCluster) -> Driver:
    """A driver on a cluster that is complete again."""
    for host in HOSTS:
        machines.start(host)
    for host in HOSTS:
        machines.await_ready(host)
    return _driver


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
