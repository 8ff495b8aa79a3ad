"""A store whose requests take longer while somebody wants them to."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from afspark.store.base import Names, Store


@dataclass
class StoreDelay:
    """How long every request takes in addition, now."""

    seconds: float = 0.0

    def wait(self) -> None:
        if self.seconds:
            time.sleep(self.seconds)


class TroubledStore(Store):
    """Another store behind a delay that may change at any time. It is one of the process that made it."""

    def __init__(self, inner: Store, delay: StoreDelay) -> None:
        self._inner, self._delay = inner, delay

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def makes_folders(self) -> bool:
        return self._inner.makes_folders

    def standing(self, folder: str) -> Store:
        return TroubledStore(self._inner.standing(folder), self._delay)

    def put(self, name: str, data: bytes) -> None:
        self._delay.wait()
        self._inner.put(name, data)

    def get(self, name: str) -> bytes:
        self._delay.wait()
        return self._inner.get(name)

    def has(self, name: str) -> bool:
        self._delay.wait()
        return self._inner.has(name)

    def list(self, prefix: str) -> Names:
        self._delay.wait()
        return self._inner.list(prefix)

    def delete(self, names: Iterable[str]) -> None:
        self._delay.wait()
        self._inner.delete(names)
