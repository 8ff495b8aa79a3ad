"""Backups that wait beside a worker's state for their way to the store, so that nobody has to wait for it.

They belong to the state: whoever loses it loses them as well, and whatever process works on it next takes them over.
One process at a time uploads them, the oldest first; none is removed before the store has it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from afspark.errors import AfsparkError, SegmentBusy
from afspark.numbers import Batch
from afspark.resident.folders import own_files
from afspark.resident.open_folder import OpenFolder, is_torn
from afspark.store import Store

SPOOL = "spool-"
_LOCK = "uploading"
_GLANCE_SECONDS = 0.02
_SLASH = "\\"


@dataclass(frozen=True, order=True)
class Spooled:
    r"""A backup that waits: of which batch, its number among those of the batch, and its name in the store.

    >>> Spooled(7, 0, "objects/a b").file
    'spool-7-0-objects\\a b'
    >>> Spooled.parse(Spooled(7, 0, "objects/a b").file)
    Spooled(batch=7, index=0, name='objects/a b')
    """

    batch: int
    index: int
    name: str

    @property
    def file(self) -> str:
        # No name in the store has a backslash. Quoted, names of operators could become too long for a file's.
        return f"{SPOOL}{self.batch}-{self.index}-{self.name.replace('/', _SLASH)}"

    @classmethod
    def parse(cls, file: str) -> Spooled | None:
        """The backup in a file; None if the file is something else."""
        if not file.startswith(SPOOL) or is_torn(file):
            return None
        batch, index, name = file.removeprefix(SPOOL).split("-", 2)
        return cls(int(batch), int(index), name.replace(_SLASH, "/"))


def spooled_in(folder: OpenFolder) -> list[Spooled]:
    """What waits in a folder, the oldest first."""
    return sorted(found for file in folder.names() if (found := Spooled.parse(file)))


def next_spooled(waiting: Sequence[Spooled], batch: Batch, name: str) -> Spooled:
    """The place of another backup of ``batch``."""
    return Spooled(batch, sum(one.batch == batch for one in waiting), name)


@dataclass(frozen=True)
class Uploaded:
    """How many bytes have reached the store, in how many seconds of writing."""

    bytes: int
    seconds: float


class Uploads:
    """The uploads of this process: at most one for each folder, by a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[Path, threading.Thread] = {}
        self._uploaded: dict[Path, Uploaded] = {}
        self._changing = threading.Lock()

    def start(self, directory: Path, store: Store) -> None:
        """Begins to write what waits in ``directory``, unless a thread is at it; returns at once."""
        with self._changing:
            if directory not in self._running or not self._running[directory].is_alive():
                thread = threading.Thread(target=self._upload, args=(directory, store), daemon=True)
                self._running[directory] = thread
                thread.start()

    @property
    def any(self) -> bool:
        """Whether threads have written anything that nobody has asked for yet."""
        return bool(self._uploaded)

    def taken(self, directory: Path) -> Uploaded | None:
        """What has been written of a folder by threads since this was asked last."""
        with self._changing:
            return self._uploaded.pop(directory, None)

    def _upload(self, directory: Path, store: Store) -> None:
        try:
            while True:
                began, written = time.monotonic(), upload(directory, store)
                with self._changing:
                    if written:
                        before = self._uploaded.get(directory, Uploaded(0, 0.0))
                        seconds = before.seconds + time.monotonic() - began
                        self._uploaded[directory] = Uploaded(before.bytes + written, seconds)
                    if not _waiting(directory):
                        self._running.pop(directory, None)
                        return
        except (AfsparkError, OSError):
            # What was not written stays where it is; whoever works on the state next, or has to wait, tries again.
            with self._changing:
                self._running.pop(directory, None)


def upload(directory: Path, store: Store) -> int:
    """Writes all that waits in ``directory`` to the store; how many bytes. Raises what the store refused it with, and
    `SegmentError` if the folder is removed meanwhile, or has no room for the lock.
    """
    try:
        folder = OpenFolder(directory)
    except FileNotFoundError:
        return 0
    written = 0
    with own_files(directory):
        lock = folder.open(_LOCK, os.O_RDWR | os.O_CREAT)
    try:
        _await_turn(lock, directory)
        for one in spooled_in(folder):
            data = folder.read(one.file)
            if data is not None:
                store.put(one.name, data)
                folder.remove(one.file)
                written += len(data)
    finally:
        os.close(lock)
        folder.close()
    return written


def _await_turn(lock: int, directory: Path) -> None:
    """Waits for the process that uploads from the same folder; `SegmentBusy` if that one is stopped: who knows when it
    will go on, and nobody may write the same object beside it.
    """
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode().strip()
            if holder.isdigit() and _is_stopped(int(holder)):
                raise SegmentBusy(
                    f"Process {holder} on this host is stopped while it uploads backups from {directory}.",
                    remedy=f"Let it go on (kill -CONT {holder}) or end it (kill -9 {holder}).",
                    path=str(directory),
                ) from None
            time.sleep(_GLANCE_SECONDS)
        else:
            with suppress(OSError):
                # Without room for it nobody knows who it is.
                os.pwrite(lock, str(os.getpid()).ljust(20).encode(), 0)
            return


def _is_stopped(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in "Tt"


def _waiting(directory: Path) -> bool:
    try:
        folder = OpenFolder(directory)
    except OSError:
        return False
    try:
        return bool(spooled_in(folder))
    finally:
        folder.close()


uploads = Uploads()
"""Those of this process."""
