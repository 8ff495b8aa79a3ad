"""Folders in shared memory for queries that last no longer than the process that runs them: tests, and trials."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED_MEMORY = "/dev/shm"
_PROCESSES = Path("/proc")


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A new folder whose name begins with ``prefix`` and the number of this process; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{os.getpid()}-", dir=_place()) as folder:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(held)


def sweep_scratch(prefix: str) -> None:
    """Removes the folders of processes that are gone: they were killed, and would be in the memory for good."""
    for folder in Path(_place() or tempfile.gettempdir()).glob(f"{prefix}*-*"):
        process = folder.name.removeprefix(prefix).partition("-")[0]
        if process.isdigit() and not (_PROCESSES / process).exists() and not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder: Path) -> bool:
    """Whether somebody is using a folder: processes of another container have numbers that mean nothing here."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _place() -> str | None:
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK) else None
