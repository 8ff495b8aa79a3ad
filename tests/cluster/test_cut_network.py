"""Packets that are dropped: a host that runs and cannot be reached, in a network namespace of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from afspark.bench.host_network import host_network
from afspark.cluster.loopback.loopback_hosts import python_paths
from tests.cluster.cut_network import HOSTS
from tests.cluster.machines import ROOT
from tests.cluster.test_cluster import BATCHES, FILES
from tests.spark.streams import Place, write_text

SECONDS = 600


@pytest.fixture(autouse=True)
def _network() -> None:
    """Nothing to be tested where a machine makes no such networks."""
    with host_network(HOSTS) as network:
        if not network.can_cut:
            pytest.skip("network namespaces need the rights of root, and the tools ip and bridge")


@pytest.mark.thorough
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("scheme", ["active-standby", "hot-standby"])
def test_a_standby_takes_the_place_of_a_host_that_is_cut_off(place: Place, scheme: str) -> None:
    """Its processes go on, and nothing they send arrives. Later it is connected again."""
    truth = write_text(place.input, FILES)
    answer = run(place, scheme)
    first, second = answer["hosts"]
    assert answer["counts"] == truth and answer["bound"] == 0
    assert answer["homes"] == [[first, second]] * 2 + [[second, second]] * (BATCHES - 2)
    assert answer["failures"][0] == [first, "silent"]
    (entry,) = answer["ledger"]
    assert (entry["worker"], entry["host"], entry["restored_cells"]) == (0, second, 0)
    assert entry["replayed_batches"] <= (1 if scheme.startswith("active") else 2)


def run(place: Place, scheme: str) -> dict[str, Any]:
    """In a process of its own: the driver has to be where hosts of that network reach it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), python_paths()])}
    environment.pop("SPARK_LOCAL_IP", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.cut_network", str(place.root), scheme],
        env=environment,
        cwd=place.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, told = process.communicate(timeout=SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, told
    answer: dict[str, Any] = json.loads(Path(place.root, "answer.json").read_text())
    return answer
