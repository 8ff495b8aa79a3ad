"""Backups on their way to the store while their worker goes on: one at a time, in order.

A chain of backups is read up to the first one that is missing, so none may become durable before those it follows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from afspark.store import ObjectRef, Store


class BackgroundWrite(Protocol):
    """A write under way. ``failure``: what it has failed with, once it has ended."""

    failure: BaseException | None

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended, after so many seconds at most."""


class DoneAtOnce:
    """A job that has ended when it was begun."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.failure: BaseException | None = None
        self._do(job)

    def wait(self, seconds: float | None = None) -> bool:
        return True

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 (raised by whoever waits: only a put that returned is durable)
            self.failure = error


class ThreadedJob(DoneAtOnce):
    """A job that a thread of this process does."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.failure = None
        self._thread = threading.Thread(target=self._do, args=(job,), name="afspark-writer", daemon=True)
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


def threaded_write(store: Store, name: str, data: bytes) -> BackgroundWrite:
    """A write by a thread of this process."""
    return ThreadedJob(partial(store.put, name, data))


StartWrite = Callable[[Store, str, bytes], BackgroundWrite]


class BackupWrites:
    """The backups of one worker in one batch. ``durable``: those that a recovery can count on, in order."""

    def __init__(self, store: Store, durable: tuple[ObjectRef, ...] = (), start: StartWrite = threaded_write) -> None:
        self._store, self._start = store, start
        self.durable = durable
        self._under_way: tuple[ObjectRef, BackgroundWrite] | None = None

    @property
    def all(self) -> tuple[ObjectRef, ...]:
        """The durable ones and the one under way."""
        return self.durable if self._under_way is None else (*self.durable, self._under_way[0])

    def begin(self, ref: ObjectRef, data: bytes) -> None:
        """Starts to write the next backup, when the one before it is durable."""
        self.wait()
        self._under_way = (ref, self._start(self._store, ref.name, data))

    def spooled(self, ref: ObjectRef) -> None:
        """A backup that waits beside the state, and will be durable if the state is not lost before."""
        self.wait()
        self.durable = (*self.durable, ref)

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all are durable, after so many seconds at most. Raises what a write has failed with."""
        if self._under_way is None:
            return True
        ref, write = self._under_way
        if not write.wait(seconds):
            return False
        self._under_way = None
        if write.failure is not None:
            raise write.failure
        self.durable = (*self.durable, ref)
        return True

    def leave(self) -> None:
        """Ends with whatever becomes of the write under way: nobody counts on it."""
        if self._under_way is not None:
            self._under_way[1].wait()
