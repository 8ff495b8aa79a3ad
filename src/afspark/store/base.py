"""What every backup store can do: put, get, list and delete immutable objects by name."""

from __future__ import annotations

import errno
import os
import re
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress

from afspark.errors import ObjectMissing, StoreFull, StoreNotWritable, UsageError

# Inside a class with a method ``list`` the word no longer means the built-in type.
Names = list[str]

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_PROBE = "probe-"
_PROBE_NAME = re.compile(rf"{_PROBE}[0-9a-f]{{16}}")

WRITABLE_REMEDY = "Choose a checkpoint folder this user can create and write, or fix its permissions."


class Store(ABC):
    """A flat space of named byte objects.

    Names are parts joined by ``/``. Objects are written once and never changed by this package, so nothing
    here renames, compares-and-sets, or relies on listings being in order of time. Implementations are
    picklable, and their methods may be called from several threads.
    """

    @property
    @abstractmethod
    def path(self) -> str:
        """Where the store is, for messages; free of credentials."""

    @abstractmethod
    def put(self, name: str, data: bytes) -> None:
        """Stores an object, replacing one of the same name; it is durable when this returns.

        A failure raises `StoreNotWritable` and may leave a prefix of the data under the name.
        """

    def put_new(self, name: str, data: bytes) -> bool | None:
        """Stores an object unless there is one of that name, and says whether; None if this store cannot tell, which
        then has done nothing. Of several that try at once, one succeeds. A try whose answer was lost counts as another.
        """
        return None

    @abstractmethod
    def get(self, name: str) -> bytes:
        """The bytes of an object; `ObjectMissing` if there is none, another `StoreError` if unreadable."""

    @abstractmethod
    def list(self, prefix: str) -> Names:
        """Sorted names of all objects at any depth below a folder (``""`` is the root); ``[]`` if absent."""

    @abstractmethod
    def delete(self, names: Iterable[str]) -> None:
        """Removes objects; missing ones are ignored."""

    def has(self, name: str) -> bool:
        """Whether there is an object of that name."""
        try:
            self.get(name)
        except ObjectMissing:
            return False
        return True

    @property
    def makes_folders(self) -> bool:
        """Whether putting an object makes its place if that is gone; not where names are all there is."""
        return True

    @property
    def may_hang(self) -> bool:
        """Whether a request may never be answered; not where it leaves the process for nothing."""
        return True

    def taken_requests(self) -> dict[str, int]:
        """How often this process has asked the store since this was asked last, by kind; nothing if nobody counts."""
        return {}

    @property
    def outages(self) -> int:
        """How often it was away and came back, as far as whoever asks it has noticed."""
        return 0

    def standing(self, folder: str) -> Store:
        """The same store, which never makes ``folder``, nor one above it: these are there, or the store is away."""
        return self

    def check_writable(self, timeout_seconds: float = 10.0) -> None:
        """Writes, reads and removes a small object.

        `StoreNotWritable` with one line of reason if that fails or takes longer than ``timeout_seconds``.
        """
        failures: list[object] = []

        def probe() -> None:
            name, data = f"{_PROBE}{secrets.token_hex(8)}", secrets.token_bytes(64)
            try:
                self.put(name, data)
                if self.get(name) != data:
                    failures.append("what was read differs from what was written")
                self.delete([name])
            except Exception as error:  # noqa: BLE001 (lost in this thread otherwise, and the check would pass)
                failures.append(error)
                # Where there is no room, an empty file may be left.
                with suppress(Exception):
                    self.delete([name])

        # A remote client may hang far longer than a user waits; a daemon thread can be left behind.
        thread = threading.Thread(target=probe, name="afspark-store-probe", daemon=True)
        thread.start()
        thread.join(timeout_seconds)
        if thread.is_alive():
            failures.append(f"no answer within {timeout_seconds:g} s")
        if failures:
            raise failures[0] if isinstance(failures[0], StoreFull) else not_writable(self.path, failures[0])

    def below(self, folder: str) -> Store:
        """The same store seen from a folder."""
        return SubStore(self, folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class SubStore(Store):
    """A folder of another store, seen as a store of its own."""

    def __init__(self, inner: Store, folder: str) -> None:
        check_name(folder)
        self._inner = inner
        self._folder = folder

    @property
    def path(self) -> str:
        return f"{self._inner.path}/{self._folder}"

    def put(self, name: str, data: bytes) -> None:
        self._inner.put(f"{self._folder}/{name}", data)

    def put_new(self, name: str, data: bytes) -> bool | None:
        return self._inner.put_new(f"{self._folder}/{name}", data)

    def get(self, name: str) -> bytes:
        try:
            return self._inner.get(f"{self._folder}/{name}")
        except ObjectMissing:
            raise ObjectMissing(f"No object {name} in {self.path}.", name=name) from None

    def list(self, prefix: str) -> Names:
        found = self._inner.list(f"{self._folder}/{prefix}" if prefix else self._folder)
        return [name[len(self._folder) + 1 :] for name in found]

    def has(self, name: str) -> bool:
        return self._inner.has(f"{self._folder}/{name}")

    @property
    def makes_folders(self) -> bool:
        return self._inner.makes_folders

    @property
    def may_hang(self) -> bool:
        return self._inner.may_hang

    def taken_requests(self) -> dict[str, int]:
        return self._inner.taken_requests()

    def standing(self, folder: str) -> Store:
        return SubStore(self._inner.standing(f"{self._folder}/{folder}"), self._folder)

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete([f"{self._folder}/{name}" for name in names])


def without_probes(names: Iterable[str]) -> Names:
    """The names but for those of `Store.check_writable`: one that is killed, or finds no room, may leave its object.

    >>> without_probes(["afspark/identity", "probe-00112233aabbccdd", "probe-of-mine"])
    ['afspark/identity', 'probe-of-mine']
    """
    return [name for name in names if not _PROBE_NAME.fullmatch(name)]


def check_name(name: str) -> str:
    """Returns a sound object name unchanged; `UsageError` for one that could leave the store's root."""
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name or "\\" in name:
        raise UsageError(f"{name!r} is no object name: parts joined by '/', none empty or made of dots.", name=name)
    return name


def check_prefix(prefix: str) -> str:
    """Returns a folder prefix without its trailing slash."""
    prefix = prefix.removesuffix("/")
    return check_name(prefix) if prefix else prefix


def one_line(reason: object, limit: int = 240) -> str:
    """A reason as one line of at most ``limit`` characters."""
    text = " ".join(str(reason).split()) or type(reason).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."


def not_writable(path: str, reason: object, remedy: str = WRITABLE_REMEDY) -> StoreNotWritable:
    """The error for a store that refuses writes; its field ``reason`` is one line. One that is full is `StoreFull`."""
    if isinstance(reason, OSError) and reason.errno in _FULL:
        free = _free_bytes(path)
        room = "" if free is None else f" ({free} bytes are free)"
        return StoreFull(
            f"The backup store {path} is full{room}: {one_line(reason)}.",
            remedy="Make room there, then start the query again.",
            path=path,
            reason=one_line(reason),
            free=free,
        )
    text = one_line(getattr(reason, "reason", None) or reason)
    return StoreNotWritable(
        f"The backup store {path} cannot be written: {text}.", remedy=remedy, path=path, reason=text
    )


def _free_bytes(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
