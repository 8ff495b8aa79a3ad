"""A standalone Spark cluster of hosts on this machine, for as long as a block lasts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from afspark.cluster.loopback.host_processes import executors_of
from afspark.cluster.loopback.loopback_hosts import MASTER, SESSION, STATE, python_paths
from afspark.cluster.spark.java import find_java_home
from afspark.errors import UsageError, from_json
from afspark.resident.segment_root import BASE_VARIABLE, default_base

START_SECONDS = 300.0
_LOOK_SECONDS = 0.1
_STOP_SECONDS = 30.0


def host_names(count: int) -> tuple[str, ...]:
    """The addresses of so many hosts.

    >>> host_names(2)
    ('127.0.0.2', '127.0.0.3')
    """
    return tuple(f"127.0.0.{number + 2}" for number in range(count))


def check_addresses(hosts: Sequence[str]) -> None:
    """Raises UsageError if one of them is no address of this machine. On Linux all of 127.0.0.0/8 are."""
    for host in hosts:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind((host, 0))
        except OSError as error:
            raise UsageError(
                f"The loopback interface has no address {host} ({error.strerror or error}).",
                remedy=f"Add it (on macOS: sudo ifconfig lo0 alias {host}), or leave out --hosts.",
                host=host,
            ) from error


class LoopbackCluster:
    """The hosts are started with the block, and at its end nothing of them is left. ``folder`` is for scratch files.

    Its methods may be called from several threads. A process of its own starts and ends the hosts; if this process
    is killed, that one ends all of them. With a ``launcher``, hosts may be in network namespaces of their own, which
    reach the address ``master``: see `LoopbackHosts`.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        slots: int,
        folder: Path,
        master: str = MASTER,
        launcher: Sequence[str] = (),
    ) -> None:
        self.hosts, self.slots, self.folder = tuple(hosts), slots, folder
        self.master, self.launcher = master, tuple(launcher)
        self.url = ""
        self._lock = Lock()
        self._supervisor: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        check_addresses((self.master, *(() if self.launcher else self.hosts)))
        java = find_java_home()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._supervisor = subprocess.Popen(
            [
                *(sys.executable, "-m", "afspark.cluster.loopback.host_supervisor"),
                *(str(self.folder), str(self.slots), str(default_base().absolute()), BASE_VARIABLE),
                *(self.master, *self.launcher),
            ],
            env=os.environ | {"JAVA_HOME": str(java), "PYTHONPATH": python_paths()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            self._ask("start_master")
            self.url = str(self._wait_for("found_url"))
            for host in self.hosts:
                self.start(host)
            for host in self.hosts:
                self.await_ready(host)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, host: str) -> None:
        """Begins to start a host that does not run, as a machine that is switched on."""
        self._ask("start", host)

    def is_ready(self, host: str) -> bool:
        """Whether the master knows the host. UsageError if it has ended by itself."""
        return bool(self._ask("is_ready", host))

    def await_ready(self, host: str) -> None:
        """Waits until the master knows the host; UsageError if that takes too long."""
        self._wait_for("is_ready", host)

    def kill(self, host: str) -> None:
        """Kills all processes of a host at once, and removes its resident state."""
        self._ask("kill", host)

    def session(self, host: str) -> int:
        """The session that all processes of a host belong to."""
        return int((self.folder / host / SESSION).read_text())

    def state_of(self, host: str) -> Path:
        """The folder with the resident state of a host."""
        return Path((self.folder / host / STATE).read_text())

    def executors(self, host: str) -> list[int]:
        """Process ids of the executors on a host."""
        return executors_of(self.session(host))

    def stop(self) -> None:
        """Kills all hosts and the master, and removes whatever they have written."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        assert supervisor.stdin is not None and supervisor.stdout is not None
        supervisor.stdin.close()
        try:
            supervisor.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            supervisor.kill()
            supervisor.wait()
        finally:
            supervisor.stdout.close()

    def _wait_for(self, name: str, *given: str) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while not (answer := self._ask(name, *given)):
            if time.monotonic() >= deadline:
                what = given[0] if given else "The Spark master"
                raise UsageError(
                    f"{what} has not started within {START_SECONDS:.0f} s.", remedy="Use fewer hosts, or try again."
                )
            time.sleep(_LOOK_SECONDS)
        return answer

    def _ask(self, name: str, *given: str) -> Any:
        with self._lock:
            supervisor = self._supervisor
            if supervisor is None or supervisor.stdin is None or supervisor.stdout is None:
                raise UsageError("The hosts were stopped.")
            try:
                supervisor.stdin.write(json.dumps({"do": name, "given": given}) + "\n")
                supervisor.stdin.flush()
                line = supervisor.stdout.readline()
            except OSError:
                line = ""
        if not line:
            raise UsageError("The process that looks after the hosts has ended.", remedy="Start the command again.")
        found = json.loads(line)
        if "error" in found:
            raise from_json(found["error"])
        return found["answer"]
