"""Locks between processes and threads, held on open files.

The kernel frees such a lock when the last process that has the file open dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

from afspark.errors import SegmentBusy, SegmentError

_POLL_SECONDS = 0.005


class FileLock:
    """Exclusive lock on an open file, between processes and between the threads that share the object.

    Not reentrant. ``path`` only serves messages.
    """

    def __init__(self, file: int, path: Path) -> None:
        self._file = file
        self._path = path
        self._process = os.getpid()
        self._threads = threading.Lock()
        self._held = False

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._held

    def acquire(self, timeout_seconds: float) -> None:
        """Waits for the lock. Raises `SegmentBusy` after ``timeout_seconds``."""
        if self._file < 0 or self._process != os.getpid():
            # A forked process shares the open file, and would share the lock with its parent.
            raise SegmentError(f"{self._path} was closed, or opened by another process.", path=str(self._path))
        deadline = time.monotonic() + timeout_seconds
        if not self._threads.acquire(timeout=max(0.0, timeout_seconds)):
            raise self._busy(timeout_seconds)
        try:
            while not _try_lock(self._file):
                if time.monotonic() >= deadline:
                    raise self._busy(timeout_seconds)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._threads.release()
            raise
        self._held = True

    def release(self) -> None:
        """Frees the lock held by this object."""
        self._held = False
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._threads.release()

    def close(self) -> None:
        """Closes the file, which frees the lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _busy(self, timeout_seconds: float) -> SegmentBusy:
        return SegmentBusy(
            f"Another task has been working on {self._path} for more than {timeout_seconds} s.",
            path=str(self._path),
        )


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
