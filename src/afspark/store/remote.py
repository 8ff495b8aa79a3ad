"""The backup store on any filesystem pyarrow speaks to: S3, GCS, Azure, HDFS, or one made by the user."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from afspark.errors import ObjectMissing, StoreError, StoreUnreachable
from afspark.store.address_schemes import redact, sparing
from afspark.store.base import Names, Store, check_name, check_prefix, not_writable, one_line

REMOTE_REMEDY = "Check the address, the credentials and the network, or use a local path."
_DELETERS = 8
_WITHOUT_FOLDERS = ("s3", "gcs", "abfs")
#: What clients of object stores say of a server or a network that is away, or that asks to be left alone for a while.
_AWAY = re.compile(
    r"NETWORK_CONNECTION|curlCode|SLOW_?DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|UNAVAILABLE"
    r"|HTTP (?:status|response code):? 5\d\d|(?:C|c)onnection (?:refused|reset|closed|failed)|(?:T|t)imed? ?out"
    r"|(?:C|c)ould(?:n't| not) (?:connect|resolve)"
)


class ArrowStore(Store):
    """Objects are files of a ``pyarrow.fs`` filesystem; durable when its output stream has closed.

    Given a URI, the filesystem is connected on first use, once in each process.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connected: tuple[Any, str] | None = None
        self._standing = ""

    @classmethod
    def over(cls, filesystem: pafs.FileSystem, root: str) -> ArrowStore:
        """A store in a folder of a filesystem object; picklable if that object is."""
        store = _ObjectStore(f"{filesystem.type_name}:{root}")
        store._connected = (filesystem, root.rstrip("/"))
        return store

    @property
    def path(self) -> str:
        return redact(self._uri)

    def put(self, name: str, data: bytes) -> None:
        filesystem, target = self._locate(check_name(name))
        try:
            try:
                _write(filesystem, target, data)
            except FileNotFoundError:
                # Only filesystems with real folders say so; object stores are spared the extra request.
                self._make_folder(filesystem, target.rpartition("/")[0])
                _write(filesystem, target, data)
        except (OSError, pa.ArrowException) as error:
            self._refuse_if_away(error)
            raise not_writable(self.path, error, REMOTE_REMEDY) from error

    def get(self, name: str) -> bytes:
        filesystem, target = self._locate(check_name(name))
        try:
            with filesystem.open_input_stream(target, compression=None) as stream:
                return bytes(stream.read())
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise ObjectMissing(f"No object {name} in {self.path}.", name=name) from None
            self._refuse_if_away(error)
            if not _is_file(filesystem, target):
                raise ObjectMissing(f"No object {name} in {self.path}.", name=name) from None
            raise StoreError(f"Cannot read {name} in {self.path}: {one_line(error)}.", name=name) from error

    def has(self, name: str) -> bool:
        filesystem, target = self._locate(check_name(name))
        try:
            if self.makes_folders:
                return bool(filesystem.get_file_info(target).type == pafs.FileType.File)
            # Asks for the object alone: information about one that is missing takes a listing as well.
            with filesystem.open_input_stream(target, compression=None):
                return True
        except FileNotFoundError:
            return False
        except (OSError, pa.ArrowException) as error:
            self._refuse_if_away(error)
            raise StoreError(f"Cannot look for {name} in {self.path}: {one_line(error)}.", name=name) from error

    @property
    def makes_folders(self) -> bool:
        return self._locate("")[0].type_name not in _WITHOUT_FOLDERS

    def list(self, prefix: str) -> Names:
        filesystem, folder = self._locate(check_prefix(prefix))
        _, root = self._locate("")
        selector = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
        try:
            found = filesystem.get_file_info(selector)
        except NotADirectoryError:
            return []
        except (OSError, pa.ArrowException) as error:
            self._refuse_if_away(error)
            raise StoreError(f"Cannot list {prefix} in {self.path}: {one_line(error)}.", name=prefix) from error
        return sorted(str(info.path)[len(root) :].lstrip("/") for info in found if info.type == pafs.FileType.File)

    def standing(self, folder: str) -> ArrowStore:
        same = copy.copy(self)
        same._standing = check_name(folder)
        return same

    def _make_folder(self, filesystem: Any, folder: str) -> None:
        if not self._standing:
            filesystem.create_dir(folder, recursive=True)
            return
        _, root = self._locate("")
        parts = folder[len(root) :].strip("/").split("/")
        for number in range(1, len(parts) + 1):
            below = "/".join(parts[:number])
            if not f"{self._standing}/".startswith(f"{below}/"):
                filesystem.create_dir(self._locate(below)[1], recursive=False)

    def delete(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(_DELETERS) as pool:
            for _ in pool.map(self._delete_one, names):
                pass

    def _delete_one(self, name: str) -> None:
        filesystem, target = self._locate(check_name(name))
        try:
            filesystem.delete_file(target)
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return
            self._refuse_if_away(error)
            if not _is_file(filesystem, target):
                return
            raise not_writable(self.path, error, REMOTE_REMEDY) from error

    def _locate(self, name: str) -> tuple[Any, str]:
        if self._connected is None:
            try:
                filesystem, root = pafs.FileSystem.from_uri(sparing(self._uri))
            except (OSError, pa.ArrowException, ImportError) as error:
                self._refuse_if_away(error)
                # Before it is cut to a line: half an address is not recognised.
                reason = one_line(str(error).replace(sparing(self._uri), self.path))
                raise not_writable(self.path, reason, REMOTE_REMEDY) from None
            self._connected = (filesystem, root.rstrip("/"))
        filesystem, root = self._connected
        return filesystem, "/".join(part for part in (root, name) if part)

    def _refuse_if_away(self, error: Exception) -> None:
        """`StoreUnreachable` if an error says that the store may be back later, and not that it refuses."""
        text = str(error)
        if isinstance(error, ConnectionError | TimeoutError) or _AWAY.search(text):
            raise self._unreachable(one_line(text.replace(sparing(self._uri), self.path))) from error

    def _unreachable(self, reason: str) -> StoreUnreachable:
        return StoreUnreachable(
            f"The backup store {self.path} cannot be reached: {reason}.",
            remedy=REMOTE_REMEDY,
            path=self.path,
            reason=reason,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_connected": None}


class _ObjectStore(ArrowStore):
    """An `ArrowStore` whose filesystem object cannot be found again by a URI, so travels with it."""

    def __getstate__(self) -> dict[str, Any]:
        return vars(self)


def _write(filesystem: Any, target: str, data: bytes) -> None:
    with filesystem.open_output_stream(target, compression=None) as stream:
        stream.write(data)


def _is_file(filesystem: Any, target: str) -> bool:
    try:
        return bool(filesystem.get_file_info(target).type == pafs.FileType.File)
    except (OSError, pa.ArrowException):
        return True  # Unknown: the caller must report the failure, not an absence.
