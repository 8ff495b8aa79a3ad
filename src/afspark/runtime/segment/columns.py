"""Columns in memory-mapped files: arrays that outlive the process that writes them.

One file per column. Its name is the url-quoted column name and the element type (``counts.value@f8``), so a
folder describes itself. Files are reserved with ``posix_fallocate`` before they are mapped, because writing
to a page that a full file system cannot provide kills the process with SIGBUS instead of raising an error.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from afspark.errors import NoSpace, SegmentError
from afspark.runtime.segment.folders import own_files

Array = npt.NDArray[Any]

# All pages at once cost a fraction of one page fault each, and a growing column is mapped anew as a whole.
_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG}


@dataclass(frozen=True)
class _Mapping:
    inode: int
    size: int
    array: Array


class MappedColumns:
    """Named growable arrays in one folder (implements the ``Columns`` protocol).

    Arrays are as long as their files, that is: rounded up to whole pages, at least one. An array handed out
    stays valid memory for as long as it is referenced, also after `grow`, `drop` and `close`, but only the
    newest one is as long as the column. Several processes may map the same columns, one at a time: whoever comes
    after another one calls `refresh` first, because the folder is listed only once.

    Raises `NoSpace` where the file system cannot hold what was asked for; the columns are then as before. Other
    errors of the system are `SegmentError`. ``changing`` is entered while files are made and removed.
    """

    def __init__(
        self, directory: Path, changing: Callable[[], AbstractContextManager[None]] = nullcontext[None]
    ) -> None:
        self._directory, self._changing = directory, changing
        self._mapped: dict[str, _Mapping] = {}
        self._listed: dict[str, np.dtype[Any]] | None = None

    def open(self, name: str, dtype: npt.DTypeLike, length: int) -> Array:
        """The column with its present content, created or extended with zeros to at least ``length``."""
        kind = np.dtype(dtype)
        if kind.kind not in "biuf" or not kind.isnative:
            raise SegmentError(f"Column {name!r} cannot hold elements of type {kind}.", column=name)
        found = self._kinds.get(name, kind)
        if found != kind:
            raise SegmentError(
                f"Column {name!r} holds {found}, expected {kind}.",
                column=name,
                found=str(found),
                expected=str(kind),
            )
        return self._map(name, kind, length)

    def grow(self, name: str, length: int) -> Array:
        """The existing column extended with zeros to at least ``length``; no element is copied."""
        kind = self._kinds.get(name)
        if kind is None:
            raise SegmentError(f"There is no column {name!r} in {self._directory}.", column=name)
        return self._map(name, kind, length)

    def drop(self, name: str) -> None:
        """Removes the column; a missing one is no error."""
        self._mapped.pop(name, None)
        kind = self._kinds.get(name)
        if kind is not None:
            path = self._path(name, kind)
            with own_files(path), self._changing(), suppress(FileNotFoundError):
                os.unlink(path)
            self._kinds.pop(name, None)

    def length(self, name: str) -> int:
        """Number of elements the column holds now, 0 if it does not exist."""
        kind = self._kinds.get(name)
        if kind is None:
            return 0
        path = self._path(name, kind)
        with own_files(path):
            return os.stat(path).st_size // kind.itemsize

    def names(self) -> list[str]:
        """The columns of the folder, sorted."""
        return sorted(self._kinds)

    def refresh(self) -> set[str]:
        """Lists the folder anew, and forgets mappings of columns that another process has grown, replaced or dropped.

        Returns their names: arrays of these columns must be opened again.
        """
        self._listed = None
        changed = {name for name, mapping in self._mapped.items() if not self._is_current(name, mapping)}
        for name in changed:
            del self._mapped[name]
        return changed

    @property
    def memory(self) -> int:
        """Bytes reserved for all columns of the folder."""
        with own_files(self._directory), os.scandir(self._directory) as files:
            return sum(file.stat().st_size for file in files)

    def close(self) -> None:
        """Forgets all mappings. Memory is returned once the arrays handed out are gone."""
        self._mapped.clear()

    def _path(self, name: str, dtype: np.dtype[Any]) -> str:
        return f"{self._directory}/{quote(name, safe='')}@{dtype.str[1:]}"

    @property
    def _kinds(self) -> dict[str, np.dtype[Any]]:
        """The columns of the folder with their element types."""
        if self._listed is None:
            with own_files(self._directory):
                files = os.listdir(self._directory)
            # quote() leaves no "@" in a name.
            parts = (file.rpartition("@") for file in files if "@" in file)
            self._listed = {unquote(name): np.dtype(kind) for name, _, kind in parts}
        return self._listed

    def _is_current(self, name: str, mapping: _Mapping) -> bool:
        try:
            status = os.stat(self._path(name, mapping.array.dtype))
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (mapping.inode, mapping.size)

    def _map(self, name: str, dtype: np.dtype[Any], length: int) -> Array:
        path = self._path(name, dtype)
        wanted = _whole_pages(length * dtype.itemsize)
        mapping = self._mapped.get(name)
        if mapping is not None and mapping.size >= wanted and self._is_current(name, mapping):
            return mapping.array
        with own_files(path):
            status, view = self._mapping(path, wanted, made=name in self._kinds)
        self._kinds[name] = dtype
        # The array keeps its mapping alive, so an older one is unmapped with the last array over it.
        array = np.frombuffer(view, dtype=dtype, count=status.st_size // dtype.itemsize)
        self._mapped[name] = _Mapping(status.st_ino, status.st_size, array)
        return array

    def _mapping(self, path: str, wanted: int, *, made: bool) -> tuple[os.stat_result, mmap.mmap]:
        with nullcontext() if made else self._changing():
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                reserve(file, path, wanted)
                status = os.fstat(file)
                with no_space_as_error(path, status.st_size):
                    return status, mmap.mmap(file, status.st_size, flags=_FLAGS)
            finally:
                os.close(file)


def reserve(file: int, path: str | Path, wanted: int) -> None:
    """Extends the open file with zeros to ``wanted`` bytes of real storage; never shortens it.

    Raises `NoSpace`, and then leaves the file at its old size (a new file is removed).
    """
    size = os.fstat(file).st_size
    if size >= wanted:
        return
    with no_space_as_error(path, wanted - size):
        try:
            os.posix_fallocate(file, size, wanted - size)
        except OSError:
            if size:
                os.ftruncate(file, size)
            else:
                Path(path).unlink(missing_ok=True)
            raise


@contextmanager
def no_space_as_error(path: str | Path, wanted: int) -> Iterator[None]:
    """Turns the system's words for a full file system or memory into `NoSpace`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        free = _free_bytes(Path(path).parent)
        raise NoSpace(
            f"{wanted} more bytes of resident state do not fit in {path} ({free} bytes are free).",
            remedy="Enlarge that file system, use more workers on more hosts, or choose another folder"
            " with the environment variable AFSPARK_SEGMENTS.",
            path=str(path),
            wanted=wanted,
            free=free,
        ) from error


def _free_bytes(directory: Path) -> int:
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _whole_pages(size: int) -> int:
    return max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
