"""The backup store in a folder of a local or mounted filesystem."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Literal

from afspark.errors import ObjectMissing, StoreError
from afspark.store.asking import answered
from afspark.store.base import Names, Store, check_name, check_prefix, not_writable, one_line

_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

#: Ends the names of files that will replace another one.
_REPLACING = ".replacing"


class LocalStore(Store):
    """Objects are files below ``root``, which the first put makes; readable by their owner only.

    ``put`` returns after fsync of the file, of its folder, and of every folder above it up to the first one
    that existed before, so that neither contents nor names are lost in a power failure.
    """

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(os.path.expanduser(root))
        self._synced: set[str] = set()
        self._standing = ""

    @property
    def path(self) -> str:
        return self._root

    def standing(self, folder: str) -> LocalStore:
        same = copy.copy(self)
        same._standing = os.path.join(self._root, check_name(folder))
        return same

    def put(self, name: str, data: bytes) -> None:
        target = os.path.join(self._root, check_name(name))
        try:
            try:
                self._write(target, data)
            except FileNotFoundError:
                if not os.path.isdir(self._root):
                    # Somebody has moved it away; what is made anew in its place would keep it from coming back.
                    raise
                # A folder this process has written to before was removed since.
                self._synced.clear()
                self._write(target, data)
        except OSError as error:
            raise not_writable(self._root, error) from error

    def get(self, name: str) -> bytes:
        try:
            with open(os.path.join(self._root, check_name(name)), "rb") as file:
                return file.read()
        except _ABSENT:
            raise ObjectMissing(f"No object {name} in {self._root}.", name=name) from None
        except OSError as error:
            raise StoreError(f"Cannot read {name} in {self._root}: {one_line(error)}.", name=name) from error

    def has(self, name: str) -> bool:
        return os.path.isfile(os.path.join(self._root, check_name(name)))

    def list(self, prefix: str) -> Names:
        start = os.path.join(self._root, check_prefix(prefix))
        try:
            return sorted(os.path.relpath(file, self._root) for file in _files(start))
        except OSError as error:
            raise StoreError(f"Cannot list {start}: {one_line(error)}.", name=prefix) from error

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            answered()
            try:
                os.unlink(os.path.join(self._root, check_name(name)))
            except _ABSENT:
                continue
            except OSError as error:
                raise not_writable(self._root, error) from error

    def _write(self, target: str, data: bytes) -> None:
        folder = os.path.dirname(target)
        if folder not in self._synced:
            _make_durable_folder(folder, self._root, self._standing)
            self._synced.add(folder)
        try:
            _fill(target, data, "xb")
        except FileExistsError:
            # Where there is no room for the new content, the old one stays.
            self._replace(target, data)
        _fsync_folder(folder)

    def _replace(self, target: str, data: bytes) -> None:
        temporary = f"{target}{_REPLACING}"
        answered()
        try:
            _fill(temporary, data, "wb")
            answered()
            os.replace(temporary, target)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def __getstate__(self) -> dict[str, Any]:
        # What this process has synced says nothing about another one.
        return {**vars(self), "_synced": set()}


def _fill(target: str, data: bytes, mode: Literal["wb", "xb"]) -> None:
    with open(target, mode, buffering=0, opener=_private) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    """Objects hold users' data: nobody but their owner may read them."""
    return os.open(path, flags, 0o600)


def _files(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(entry.path)
                elif not entry.name.endswith(_REPLACING):
                    yield entry.path
    except _ABSENT:
        return


def _make_durable_folder(folder: str, root: str, standing: str) -> None:
    """Makes a folder at or below the root, for its owner only, and syncs the names on the way to it.

    Folders below the root are synced although they exist: another process may have made them a moment ago
    and not have synced them yet. Neither ``standing`` nor a folder above it is made: FileNotFoundError without it.
    """
    named = [folder]
    while named[-1] != root:
        named.append(os.path.dirname(named[-1]))
    while not os.path.isdir(named[-1]):
        named.append(os.path.dirname(named[-1]))
    if not standing:
        os.makedirs(os.path.dirname(root), exist_ok=True)
    for name in reversed(named):
        if len(name) >= len(root) and not _is_within(standing, name) and not os.path.isdir(name):
            with suppress(FileExistsError):
                os.mkdir(name, 0o700)
    for name in named[:-1]:
        _fsync_folder(os.path.dirname(name))


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")


def _fsync_folder(folder: str) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:
        return  # A folder that may be written but not read cannot be synced by its user.
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some network filesystems sync folders by themselves and refuse.
            raise
    finally:
        os.close(descriptor)
