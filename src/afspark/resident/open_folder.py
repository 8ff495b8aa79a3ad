"""The files of one folder, by its descriptor: never those of a folder that has taken its place."""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path

from afspark.resident.folders import own_files
from afspark.resident.memory_map import SHARED

#: How the name of a file ends that is being written.
TORN = ".tmp"


def is_torn(name: str) -> bool:
    """Whether a file is being written, or was when its process ended."""
    return name.endswith(TORN)


class OpenFolder:
    """A folder that was opened once. When it is removed, its process finds nothing and can make nothing any more.

    Errors of the system are `SegmentError`, except where a method says otherwise. ``path`` only serves messages.
    """

    def __init__(self, path: Path, inside: OpenFolder | None = None) -> None:
        self.path = path
        flags = os.O_RDONLY | os.O_DIRECTORY
        self._file: int = os.open(path, flags) if inside is None else os.open(path.name, flags, dir_fd=inside._file)
        self.close = weakref.finalize(self, os.close, self._file)

    def open(self, name: str, flags: int) -> int:
        """A file's descriptor, the caller's to close; a new file is its owner's alone. Raises `OSError`."""
        return os.open(name, flags, 0o600, dir_fd=self._file)

    def stat(self, name: str) -> os.stat_result:
        """Raises `OSError`."""
        return os.stat(name, dir_fd=self._file)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        with own_files(self.path):
            try:
                self.stat(name)
            except FileNotFoundError:
                return False
            return True

    def size(self, name: str) -> int:
        """How long a file is; 0 if there is none."""
        with own_files(self.path):
            try:
                return self.stat(name).st_size
            except FileNotFoundError:
                return 0

    def read(self, name: str) -> bytes | None:
        """A file's content; None if there is none."""
        with own_files(self.path):
            try:
                file = self.open(name, os.O_RDONLY)
            except FileNotFoundError:
                return None
            with os.fdopen(file, "rb") as stream:
                return stream.read()

    def mapped(self, name: str) -> memoryview | None:
        """A file's content without a copy, valid also when the file is removed; None if there is none."""
        with own_files(self.path):
            try:
                file = self.open(name, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                size = os.fstat(file).st_size
                return memoryview(mmap.mmap(file, size, SHARED, mmap.PROT_READ) if size else b"")
            finally:
                os.close(file)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Writes a file; it is there as a whole or not at all. Raises `OSError`."""
        temporary = f"{name}{TORN}"
        try:
            with os.fdopen(self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as stream:
                stream.write(data)
            os.replace(temporary, name, src_dir_fd=self._file, dst_dir_fd=self._file)
        except OSError:
            # Where there is no room, a part of it would only take more.
            self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Removes a file; a missing one is no error."""
        with own_files(self.path):
            try:
                os.unlink(name, dir_fd=self._file)
            except FileNotFoundError:
                return

    def names(self) -> list[str]:
        with own_files(self.path):
            return os.listdir(self._file)

    @property
    def bytes(self) -> int:
        """The size of all its files together."""
        with own_files(self.path), os.scandir(self._file) as files:
            return sum(file.stat().st_size for file in files)
