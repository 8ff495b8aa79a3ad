"""Drivers in processes of their own, with a JVM each, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.spark.streams import Place


class OwnDriver:
    """Runs ``code`` with the place and ``arguments``."""

    def __init__(self, code: str, place: Place, *arguments: str) -> None:
        self._errors = place.root / "stderr"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, str(place.root), *arguments],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=self._errors.open("wb"),
        )
        self.pid = self._process.pid

    def wait_for(self, path: Path, pattern: str = "", *, seconds: float = 120) -> None:
        """Until ``path`` is there, with something like ``pattern`` in it."""
        deadline = time.monotonic() + seconds
        while not (list(path.glob(pattern)) if pattern else path.exists()):
            alive = self._process.poll() is None and time.monotonic() < deadline
            assert alive, f"no {path.name}: {self._errors.read_text()}"
            time.sleep(0.1)

    def wait_until_it_kills_itself(self) -> None:
        assert self._process.wait(120) == -signal.SIGKILL, self._errors.read_text()

    def kill(self) -> None:
        # The JVM ends by itself when its driver is gone; no test should wait for that.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def own_driver(code: str, place: Place, *arguments: str) -> Iterator[OwnDriver]:
    driver = OwnDriver(code, place, *arguments)
    try:
        yield driver
    finally:
        driver.kill()
