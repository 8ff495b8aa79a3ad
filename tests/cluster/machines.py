"""A standalone Spark cluster of real processes: a master on 127.0.0.1, workers on 127.0.0.2 and 127.0.0.3."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pyspark

from afspark.cluster.spark.java import find_java_home

ROOT = Path(__file__).parents[2]
HOSTS = ("127.0.0.2", "127.0.0.3")
_SPARK = Path(pyspark.__file__).parent
# No daemon shall outlive a test run that was itself killed. Where the tool is missing, an orderly end stops them.
_END_WITH_PARENT = ["setpriv", "--pdeathsig", "SIGKILL"] if shutil.which("setpriv") else []


def environment() -> dict[str, str]:
    """What every process of the cluster and its drivers needs to know."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(_SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    }


class Machines:
    """The cluster's processes, each with its own group, so that a host can be ended as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        said = self._spawn("master", "127.0.0.1", ["org.apache.spark.deploy.master.Master", *address])
        self.url = said(r"Starting Spark master at (spark://\S+)")
        for host in HOSTS:
            self.revive(host)

    def revive(self, host: str) -> None:
        """Starts the worker daemon of a host, if it does not run, and waits until the master knows it."""
        if host not in self._running:
            size = ["--host", host, "-c", "2", "-m", "1g", "--webui-port", "0"]
            said = self._spawn(host, host, ["org.apache.spark.deploy.worker.Worker", *size, self.url])
            said(r"Successfully registered with master (spark://\S+)")

    def end(self, name: str) -> None:
        """Kills everything of a host, executors included."""
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.end(name)

    def group(self, host: str) -> int:
        """Process group of a host: to end it from another process."""
        return self._running[host].pid

    def forget(self, host: str) -> None:
        """Somebody else has ended the host."""
        self._running.pop(host).wait()

    def _spawn(self, name: str, host: str, command: list[str]) -> Callable[[str], str]:
        """Starts a daemon; the answer waits until its log says something."""
        scratch = self.folder / name
        scratch.mkdir(exist_ok=True)
        own = {"SPARK_LOCAL_IP": host, "SPARK_WORKER_DIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch / "local")}
        path = scratch / "log"
        path.unlink(missing_ok=True)
        with path.open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*_END_WITH_PARENT, str(_SPARK / "bin" / "spark-class"), *command],
                env=environment() | own,
                cwd=scratch,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return partial(_said, path)


def _said(log: Path, pattern: str, seconds: float = 120) -> str:
    deadline = time.monotonic() + seconds
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, f"{log} never said {pattern}"
        time.sleep(0.1)
    return found[1]


def executors(host: str) -> list[int]:
    """Process ids of the executors on a host."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(argument.endswith(b"ExecutorBackend") for argument in arguments) and host.encode() in arguments:
            found.append(int(entry.parent.name))
    return found


def with_children(pids: Iterable[int]) -> list[int]:
    """The processes and all that they have started, directly or not."""
    found = list(pids)
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found
