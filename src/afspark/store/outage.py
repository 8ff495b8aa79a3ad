"""A store that was there and may be away for a while: a mount that is gone, a folder that somebody has moved."""

from __future__ import annotations

import time
from collections.abc import Iterable

from afspark.errors import ObjectMissing, StoreAway, StoreNotWritable, UsageError
from afspark.store.base import Names, Store

WAIT_SECONDS = 60.0
"""How long a store may be away before whoever needs it gives up."""

_GLANCE_SECONDS = 0.1


class WaitingStore(Store):
    """Another store that is known by one of its objects, the ``marker``: where that is gone, all of it is away.

    Requests wait until it is back, `StoreAway` after ``seconds``. Nothing is made anew in its place: the folder of the
    marker is never made. Nothing that is away passes for missing. Once somebody has waited in vain, nobody waits again
    before it was back.
    """

    def __init__(self, inner: Store, marker: str, *, seconds: float = WAIT_SECONDS) -> None:
        if not seconds >= 0:
            raise UsageError(f"A store cannot be waited for {seconds} seconds.", seconds=seconds)
        self._inner = inner.standing(marker.rpartition("/")[0])
        self._marker, self._seconds = marker, seconds
        self._given_up = False

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def makes_folders(self) -> bool:
        return self._inner.makes_folders

    def put(self, name: str, data: bytes) -> None:
        if not self.makes_folders:
            self._inner.put(name, data)
            return
        done = refused = False
        # It may go away at any moment, and Spark may make another one, where this lands.
        while self._waited() or not done:
            try:
                self._inner.put(name, data)
                done = True
            except StoreNotWritable:
                if not self._waited():
                    if refused:
                        raise
                    refused = True

    def get(self, name: str) -> bytes:
        while True:
            try:
                return self._inner.get(name)
            except ObjectMissing:
                if not self._waited():
                    raise

    def has(self, name: str) -> bool:
        while not (found := self._inner.has(name)) and self._waited():
            continue
        return found

    def list(self, prefix: str) -> Names:
        while not (found := self._inner.list(prefix)) and self._waited():
            continue
        return found

    def delete(self, names: Iterable[str]) -> None:
        self._inner.delete(names)

    def _waited(self) -> bool:
        """False if the store is there, True if it had to be waited for."""
        deadline = time.monotonic() + (0.0 if self._given_up else self._seconds)
        waited = False
        while not self._inner.has(self._marker):
            if time.monotonic() >= deadline:
                self._given_up = True
                raise StoreAway(
                    f"The backup store {self.path} is gone, and did not come back for {self._seconds:g} s.",
                    remedy="Bring it back where it was, then start the query again; nothing was put in its place.",
                    path=self.path,
                    seconds=self._seconds,
                )
            time.sleep(_GLANCE_SECONDS)
            waited = True
        self._given_up = False
        return waited
