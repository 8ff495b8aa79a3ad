"""The real receiver as a process of its own, so that its death and its memory can be seen from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.wire.security import Access
from afspark.store import Throttle, ThrottledStore, open_store

ROOT = Path(__file__).parents[3]

#: what workers of such receivers show
WORKERS = Access(worker_secret="the secret of a test")


class ChildReceiver:
    """Serves ``schema`` on ``lanes`` until it is closed.

    ``store``: the folder of its log; ``throttle``: latency in seconds and bytes a second of a line to it.
    """

    def __init__(
        self,
        schema: pa.Schema,
        lanes: int,
        *,
        store: Path | None = None,
        throttle: tuple[float, float] | None = None,
        allow_items: float | None = None,
        log_first: bool = False,
        **limits: Any,
    ) -> None:
        options = {
            "schema": schema.serialize().to_pybytes().hex(),
            "lanes": lanes,
            "store": None if store is None else str(store),
            "throttle": throttle,
            "allow_items": allow_items,
            "log_first": log_first,
            "limits": limits,
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.push.child_receiver", json.dumps(options)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.errors()
        self.port = int(line)
        self.address = f"grpc://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def resident(self, peak: bool = False) -> int:
        """Bytes of memory it holds now, or held at most."""
        name = "VmHWM:" if peak else "VmRSS:"
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

    def errors(self) -> str:
        """The end of what it wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(options: dict[str, Any]) -> None:
    store = None if options["store"] is None else open_store(options["store"])
    if store is not None and options["throttle"] is not None:
        store = ThrottledStore(store, Throttle(*options["throttle"]))
    allow = {} if options["allow_items"] is None else {"allow_items": options["allow_items"]}
    receiver = Receiver(
        ReceiverConfig(
            schema=pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(options["schema"]))),
            lanes=tuple(range(options["lanes"])),
            store=store,
            limits=Limits(**options["limits"]),
            log_first=options["log_first"],
            worker_secret=WORKERS.worker_secret,
            **allow,
        )
    )
    receiver.start()
    sys.stdout.write(f"{receiver.port}\n")
    sys.stdout.flush()
    # Ends with whoever started it.
    sys.stdin.read()


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))
