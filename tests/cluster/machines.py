"""The cluster of the tests: that of ``afspark run --hosts 2``, with what is done to its executors."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from afspark.cluster.loopback.host_processes import executors_of
from afspark.cluster.loopback.loopback_cluster import host_names
from afspark.cluster.loopback.loopback_hosts import SESSION

ROOT = Path(__file__).parents[2]
HOSTS = host_names(2)
#: Names the folder of the cluster to the drivers.
FOLDER_VARIABLE = "AFSPARK_TEST_CLUSTER"


def executors(host: str) -> list[int]:
    """Process ids of the executors on a host of the tests' cluster, and of no other one on this machine."""
    return executors_of(int(Path(os.environ[FOLDER_VARIABLE], host, SESSION).read_text()))


def with_children(pids: Iterable[int]) -> list[int]:
    """The processes and all that they have started, directly or not."""
    found = list(pids)
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def signal_host(host: str, number: signal.Signals) -> None:
    """Sends a signal to all executors of a host and to what they have started."""
    for pid in with_children(executors(host)):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def lose_host(host: str, state: Path) -> None:
    """The host has restarted: its processes are gone, and so is what it had beside the store."""
    signal_host(host, signal.SIGKILL)
    while state.exists():
        # Whoever was killed just now may be in the midst of a last write.
        shutil.rmtree(state, ignore_errors=True)
