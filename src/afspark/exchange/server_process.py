"""A model server as a process of its own, which ends with the one that has started it."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading

from afspark.errors import WorkerFailed

_STOP_SECONDS = 5.0


class ServerProcess:
    """Runs a model server for one shard of ``size`` cells on this machine, reached at ``host``."""

    def __init__(self, size: int, *, host: str, secret: str) -> None:
        # The secret goes by the environment: others can read the command line.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "afspark.exchange.server_process", str(size), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "AFSPARK_MODEL_SECRET": secret},
            text=True,
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.close()
            raise WorkerFailed("A model server could not be started.", remedy="See what it wrote before this line.")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

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


def main(argv: list[str] | None = None) -> None:
    """Serves until standard input ends."""
    from afspark.exchange.model_server import ModelServer

    parser = argparse.ArgumentParser(prog="python -m afspark.exchange.server_process")
    parser.add_argument("size", type=int)
    parser.add_argument("host")
    told = parser.parse_args(argv)
    server = ModelServer(told.size, host=told.host, secret=os.environ["AFSPARK_MODEL_SECRET"])
    sys.stdout.write(f"{server.address}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    server.serve()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
