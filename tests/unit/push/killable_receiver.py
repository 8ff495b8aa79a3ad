"""The real receiver as a process that a test can kill: ``python -m tests.unit.push.killable_receiver PORT STORE L``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.store import open_store
from tests.unit.push.child_receiver import WORKERS
from tests.unit.push.fake_receiver import SCHEMA

ROOT = Path(__file__).parents[3]


class KillableReceiver:
    """``allow``: items of a lane that may be acknowledged without backup."""

    def __init__(self, port: int, store: Path, allow: int, lanes: int = 2) -> None:
        command = [sys.executable, "-m", "tests.unit.push.killable_receiver", *map(str, (port, store, allow, lanes))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()


def serve(port: int, store: str, allow: int, lanes: int) -> None:
    config = ReceiverConfig(
        schema=SCHEMA,
        lanes=tuple(range(lanes)),
        store=open_store(store),
        port=port,
        allow_items=allow,
        worker_secret=WORKERS.worker_secret,
    )
    receiver = Receiver(config)
    receiver.start()
    sys.stdout.write(f"{receiver.port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
