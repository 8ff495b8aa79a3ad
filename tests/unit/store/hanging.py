"""A store that hangs, as a network mount does whose server is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from afspark.store.base import Names
from afspark.store.local import LocalStore

T = TypeVar("T")


class HangingStore(LocalStore):
    """Requests that ``hangs`` names, by kind and object, wait for the gate to open, and are carried out then."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.hangs: Callable[[str, str], bool] = lambda kind, name: False
        self.gate = threading.Event()
        self.begun: list[str] = []
        #: what has come to its end behind the gate
        self.late: list[str] = []

    def standing(self, folder: str) -> HangingStore:
        return self  # a test tells this one when it hangs

    def put(self, name: str, data: bytes) -> None:
        self._behind_the_gate("put", name, lambda: LocalStore.put(self, name, data))

    def get(self, name: str) -> bytes:
        return self._behind_the_gate("get", name, lambda: LocalStore.get(self, name))

    def has(self, name: str) -> bool:
        return self._behind_the_gate("has", name, lambda: LocalStore.has(self, name))

    def list(self, prefix: str) -> Names:
        return self._behind_the_gate("list", prefix, lambda: LocalStore.list(self, prefix))

    def delete(self, names: Iterable[str]) -> None:
        listed = [*names]
        self._behind_the_gate("delete", " ".join(listed), lambda: LocalStore.delete(self, listed))

    def _behind_the_gate(self, kind: str, name: str, request: Callable[[], T]) -> T:
        if not self.hangs(kind, name):
            return request()
        self.begun.append(name)
        assert self.gate.wait(60), "nobody has opened the gate"
        try:
            return request()
        finally:
            self.late.append(name)
