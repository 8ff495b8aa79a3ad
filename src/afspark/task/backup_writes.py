"""Backups on their way to the store while their worker goes on: one at a time, in order.

A chain of backups is read up to the first one that is missing, so none may become durable before those it follows.
"""

from __future__ import annotations

import threading

from afspark.store import ObjectRef, Store


class BackupWrites:
    """The backups of one worker in one batch. ``durable``: those that a recovery can count on, in order."""

    def __init__(self, store: Store, durable: tuple[ObjectRef, ...] = ()) -> None:
        self._store = store
        self.durable = durable
        self._under_way: tuple[ObjectRef, threading.Thread] | None = None
        self._failure: BaseException | None = None

    @property
    def all(self) -> tuple[ObjectRef, ...]:
        """The durable ones and the one under way."""
        return self.durable if self._under_way is None else (*self.durable, self._under_way[0])

    def begin(self, ref: ObjectRef, data: bytes) -> None:
        """Starts to write the next backup, when the one before it is durable."""
        self.wait()
        thread = threading.Thread(target=self._put, args=(ref.name, data), name="afspark-backup", daemon=True)
        self._under_way = (ref, thread)
        thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits at most so long; whether all are durable now. Raises what a write has failed with."""
        if self._under_way is None:
            return True
        ref, thread = self._under_way
        thread.join(seconds)
        if thread.is_alive():
            return False
        self._under_way = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self.durable = (*self.durable, ref)
        return True

    def leave(self) -> None:
        """Ends with whatever becomes of the write under way: nobody counts on it."""
        if self._under_way is not None:
            self._under_way[1].join()

    def _put(self, name: str, data: bytes) -> None:
        try:
            self._store.put(name, data)
        except BaseException as error:  # noqa: BLE001 (raised by whoever waits: only a put that returned is durable)
            self._failure = error
