"""Columns in memory-mapped files: arrays that outlive the process that writes them.

One file per column. Its name is the url-quoted column name and the element type (``counts.value@f8``), so a
folder describes itself. Files are reserved with ``posix_fallocate`` before they are mapped, because writing
to a page that a full file system cannot provide kills the process with SIGBUS instead of raising an error.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from afspark.errors import NoSpace, SegmentError
from afspark.resident.folders import own_files
from afspark.resident.manifest import Manifest
from afspark.resident.memory_map import SHARED, map_file
from afspark.resident.open_folder import OpenFolder

Array = npt.NDArray[Any]

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
    errors of the system are `SegmentError`, and so is a column that somebody else has removed: it is never made anew.
    Without a ``manifest`` only those are missed that were there when the folder was listed.
    """

    def __init__(self, folder: OpenFolder, manifest: Manifest | None = None) -> None:
        self._folder, self._manifest = folder, manifest
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
            raise SegmentError(f"There is no column {name!r} in {self._folder.path}.", column=name)
        return self._map(name, kind, length)

    def drop(self, name: str) -> None:
        """Removes the column; a missing one is no error."""
        self._mapped.pop(name, None)
        kind = self._kinds.get(name)
        if kind is not None:
            file = _file_name(name, kind)
            with nullcontext() if self._manifest is None else self._manifest.removing(file, there=True):
                self._folder.remove(file)
            self._kinds.pop(name, None)

    def length(self, name: str) -> int:
        """Number of elements the column holds now, 0 if it does not exist."""
        kind = self._kinds.get(name)
        if kind is None:
            return 0
        with own_files(self._folder.path):
            return self._folder.stat(_file_name(name, kind)).st_size // kind.itemsize

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
        return self._folder.bytes

    def close(self) -> None:
        """Forgets all mappings. Memory is returned once the arrays handed out are gone."""
        self._mapped.clear()

    @property
    def _kinds(self) -> dict[str, np.dtype[Any]]:
        """The columns of the folder with their element types."""
        if self._listed is None:
            files = self._folder.names() if self._manifest is None else self._manifest.names()
            # quote() leaves no "@" in a name.
            parts = (file.rpartition("@") for file in files if is_column(file))
            self._listed = {unquote(name): np.dtype(kind) for name, _, kind in parts}
        return self._listed

    def _is_current(self, name: str, mapping: _Mapping) -> bool:
        try:
            status = self._folder.stat(_file_name(name, mapping.array.dtype))
        except FileNotFoundError:
            return False
        return (status.st_ino, status.st_size) == (mapping.inode, mapping.size)

    def _map(self, name: str, dtype: np.dtype[Any], length: int) -> Array:
        file = _file_name(name, dtype)
        wanted = _whole_pages(length * dtype.itemsize)
        mapping = self._mapped.get(name)
        if mapping is not None and mapping.size >= wanted and self._is_current(name, mapping):
            return mapping.array
        with own_files(self._folder.path):
            inode, array = self._mapping(file, wanted, made=name in self._kinds)
        self._kinds[name] = dtype
        mapping = self._mapped[name] = _Mapping(inode, array.nbytes, array.view(dtype))
        return mapping.array

    def _mapping(self, name: str, wanted: int, *, made: bool) -> tuple[int, Array]:
        path = f"{self._folder.path}/{name}"
        with nullcontext() if made or self._manifest is None else self._manifest.making(name, there=False):
            # One that was there and is gone has been removed by somebody: it must not come back empty.
            file = self._folder.open(name, os.O_RDWR | (0 if made else os.O_CREAT))
            try:
                inode, size = reserve(file, path, wanted)
                return inode, map_file(file, size, SHARED, path)
            except NoSpace:
                if not os.fstat(file).st_size:
                    self._folder.remove(name)
                raise
            finally:
                os.close(file)


def is_column(file: str) -> bool:
    """Whether a file is a column."""
    return "@" in file


def reserve(file: int, path: str | Path, wanted: int) -> tuple[int, int]:
    """Extends the open file with zeros to ``wanted`` bytes of real storage; never shortens it.

    Returns its inode and size. Raises `NoSpace`, and then leaves the file at its old size.
    """
    status = os.fstat(file)
    size = status.st_size
    if size >= wanted:
        return status.st_ino, size
    with no_space_as_error(path, wanted - size):
        try:
            os.posix_fallocate(file, size, wanted - size)
        except OSError:
            os.ftruncate(file, size)
            raise
    return status.st_ino, wanted


@contextmanager
def no_space_as_error(path: str | Path, wanted: int) -> Iterator[None]:
    """Turns the system's words for a full file system or memory into `NoSpace`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise _no_space(path, wanted, _free_bytes(Path(path).parent)) from error


def require_space(path: str | Path, wanted: int) -> None:
    """`NoSpace` if so many bytes would not fit where ``path`` is."""
    free = _free_bytes(Path(path).parent)
    if free < wanted:
        raise _no_space(path, wanted, free)


def fits_now(error: NoSpace) -> bool:
    """Whether there is room by now for what did not fit."""
    return "free" in error.fields and _free_bytes(Path(error.path).parent) >= error.wanted


def _no_space(path: str | Path, wanted: int, free: int) -> NoSpace:
    return NoSpace(
        f"{wanted} more bytes of resident state do not fit in {path} ({free} bytes are free).",
        remedy="Enlarge that file system, use more workers on more hosts, or choose another folder"
        " with the environment variable AFSPARK_SEGMENTS.",
        path=str(path),
        wanted=wanted,
        free=free,
    )


def _free_bytes(directory: Path) -> int:
    try:
        status = os.statvfs(directory)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _file_name(column: str, dtype: np.dtype[Any]) -> str:
    return f"{quote(column, safe='')}@{dtype.str[1:]}"


def _whole_pages(size: int) -> int:
    return max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE
