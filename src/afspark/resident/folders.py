"""Making and removing folders of the segment tree safely among several processes."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afspark.errors import SegmentError
from afspark.resident.file_lock import FileLock

DEAD = ".dead-"
"""Prefix of a folder that is being removed."""

NEW = ".new-"
"""Prefix of a folder that is being filled."""


def private_folder(path: Path) -> None:
    """Makes the folder and its missing parents, accessible to their owner only."""
    if not path.is_dir():
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def own_files(directory: str | Path) -> Iterator[None]:
    """Errors of the system on a segment's files as `SegmentError`: state is lost or away, no user's code has failed."""
    try:
        yield
    except OSError as error:
        raise SegmentError(
            f"{directory} is gone or cannot be used: {error}.", path=str(directory), reason=str(error)
        ) from error


def discard(directory: Path) -> None:
    """Removes a folder with its contents; renamed first, so that no part of it is ever opened."""
    grave = directory.with_name(f"{DEAD}{directory.name}-{secrets.token_hex(4)}")
    try:
        os.rename(directory, grave)
    except FileNotFoundError:
        return
    shutil.rmtree(grave, ignore_errors=True)


@contextmanager
def locked_folder(path: Path, timeout_seconds: float) -> Iterator[None]:
    """Makes the folder if needed and keeps others from adding to or removing from it.

    Raises `SegmentBusy` after ``timeout_seconds``.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        lock = _open_folder(path, deadline)
        try:
            lock.acquire(max(0.0, deadline - time.monotonic()))
            if _is_same(lock, path):
                yield
                return
        finally:
            lock.close()


class _FolderLock(FileLock):
    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        super().__init__(file, path)
        self.inode = os.fstat(file).st_ino


def _open_folder(path: Path, deadline: float) -> _FolderLock:
    # A cleaning process may remove a folder, while it is empty, between any two of these calls.
    while True:
        try:
            private_folder(path)
            return _FolderLock(path)
        except FileNotFoundError:
            if time.monotonic() >= deadline:
                raise


def _is_same(lock: _FolderLock, path: Path) -> bool:
    try:
        return path.stat().st_ino == lock.inode
    except FileNotFoundError:
        return False
