"""A model server as a process of its own: one that ends with the process that has started it, or, where that is a task,
when nobody has called for a while.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from afspark.errors import WorkerFailed

if TYPE_CHECKING:
    from afspark.exchange.model_server import ModelServer

_MODULE = "afspark.exchange.server_process"
_STOP_SECONDS = 5.0
#: How long a server that no process belongs to waits for calls. Whoever finds it gone starts another one.
LEASE_SECONDS = 600.0
_LOOK_SECONDS = 5.0


class ServerProcess:
    """Runs a model server for one shard of ``size`` cells on this machine, reached at ``host``."""

    def __init__(self, size: int, *, host: str, secret: str) -> None:
        self._process = subprocess.Popen(
            _command(size, host), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment(secret), text=True
        )
        try:
            self.address = _announced(self._process)
        except WorkerFailed:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def give_up(self) -> None:
        """Ends a server that does not answer; one that is stopped ends in no other way."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill_alone(pid: int) -> None:
    """Kills a server that `start_alone` has started on this machine; nothing else that has its number by now."""
    with contextlib.suppress(OSError):
        if f"\0{_MODULE}\0".encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def start_alone(size: int, *, host: str, secret: str, lease: float = LEASE_SECONDS) -> tuple[str, int]:
    """Starts a server on this machine that outlives this process; its address and its number. It ends when it is told
    to, or when nobody has called for ``lease`` seconds.
    """
    process = subprocess.Popen(
        [*_command(size, host), "--lease", str(lease)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=_environment(secret),
        text=True,
        start_new_session=True,
    )
    address = _announced(process)
    assert process.stdout is not None
    process.stdout.close()
    return address, process.pid


def _command(size: int, host: str) -> list[str]:
    return [sys.executable, "-m", _MODULE, str(size), host]


def _environment(secret: str) -> dict[str, str]:
    """The secret goes by the environment: others can read the command line. Modules are found where they are here."""
    return {**os.environ, "AFSPARK_MODEL_SECRET": secret, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _announced(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    if not address:
        raise WorkerFailed("A model server could not be started.", remedy="See what it wrote before this line.")
    return address


def main(argv: list[str] | None = None) -> None:
    """Serves until standard input ends, or nobody has called for so long."""
    from afspark.exchange.model_server import ModelServer

    parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
    parser.add_argument("size", type=int)
    parser.add_argument("host")
    parser.add_argument("--lease", type=float)
    told = parser.parse_args(argv)
    server = ModelServer(told.size, host=told.host, secret=os.environ["AFSPARK_MODEL_SECRET"])
    sys.stdout.write(f"{server.address}\n")
    sys.stdout.flush()
    if told.lease is None:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    else:
        threading.Thread(target=_end_when_idle, args=(server, told.lease), daemon=True).start()
    server.serve()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def _end_when_idle(server: ModelServer, lease: float) -> None:
    while server.idle_seconds < lease:
        time.sleep(min(lease, _LOOK_SECONDS))
    server.shutdown()


if __name__ == "__main__":
    main()
