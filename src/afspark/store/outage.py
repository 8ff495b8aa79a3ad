"""A store that was there and may be away for a while: a mount that is gone or hangs, a folder somebody moved, a server
that nobody reaches.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from afspark.errors import ObjectMissing, StoreAway, StoreNotWritable, StoreUnreachable, UsageError
from afspark.store import request_counts
from afspark.store.asking import Request, answered
from afspark.store.base import Names, Store

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""How long a store may be away before whoever needs it gives up."""

_GLANCE_SECONDS = 0.1

_LEAST_SECONDS = 1.0
"""How long any store may take for a request, however short it may be away."""

_LEAST_BYTES_PER_SECOND = 256 * 1024
"""A store that writes less than that does not get on. Nobody sees how far a single write has come."""

#: What nobody waits for any more, by the store that was asked: as long as it has not ended, nobody waits again.
_unanswered: dict[str, Request[Any]] = {}
# A forked child would never hear of their end.
os.register_at_fork(after_in_child=_unanswered.clear)


class WaitingStore(Store):
    """Another store that is known by one of its objects, the ``marker``: where that is gone, all of it is away.

    Requests wait until it is back, `StoreAway` after ``seconds``. Nothing is made anew in its place: the folder of the
    marker is never made. Nothing that is away passes for missing. Once somebody has waited in vain, nobody waits again
    before it was back.

    A server that cannot be reached is away as well: it is asked again, which does no harm, because what is put under a
    name is the same every time.

    A store that hangs is away as well. Writes are given ``seconds`` and what their size may take, other requests as
    long as the store answers anybody. What was given up may still come to its end, at any time, in a thread that was
    left behind; in a folder it replaces nothing (`afspark.store.asking`).
    """

    def __init__(self, inner: Store, marker: str, *, seconds: float = WAIT_SECONDS) -> None:
        if not seconds >= 0:
            raise UsageError(f"A store cannot be waited for {seconds} seconds.", seconds=seconds)
        self._inner = inner.standing(marker.rpartition("/")[0])
        self._marker, self._seconds = marker, seconds
        self._given_up = False
        self._outages = 0
        #: copies in other processes, and in this one, are the same store
        self._token = secrets.token_hex(8)

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def makes_folders(self) -> bool:
        return self._inner.makes_folders

    @property
    def outages(self) -> int:
        return self._outages

    def put(self, name: str, data: bytes) -> None:
        self._count("puts")
        self._ask(partial(self._put, name, data), size=len(data))

    def put_new(self, name: str, data: bytes) -> bool | None:
        self._count("puts")
        return self._ask(partial(self._inner.put_new, name, data), size=len(data))

    def get(self, name: str) -> bytes:
        self._count("gets")
        return self._ask(partial(self._get, name))

    def has(self, name: str) -> bool:
        self._count("gets")
        return self._ask(partial(self._has, name))

    def list(self, prefix: str) -> Names:
        self._count("lists")
        return self._ask(partial(self._list, prefix))

    def delete(self, names: Iterable[str]) -> None:
        names = [*names]
        if names:
            self._count("deletes", len(names))
            self._ask(partial(self._inner.delete, names))

    def taken_requests(self) -> dict[str, int]:
        return request_counts.take(self._token)

    def _put(self, name: str, data: bytes) -> None:
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

    def _get(self, name: str) -> bytes:
        while True:
            try:
                return self._inner.get(name)
            except ObjectMissing:
                if not self._waited():
                    raise

    def _has(self, name: str) -> bool:
        while not (found := self._inner.has(name)) and self._waited():
            continue
        return found

    def _list(self, prefix: str) -> Names:
        while not (found := self._inner.list(prefix)) and self._waited():
            continue
        return found

    def _waited(self) -> bool:
        """False if the store is there, True if it had to be waited for."""
        deadline = time.monotonic() + (0.0 if self._given_up else self._seconds)
        waited = False
        while not self._marked():
            answered()
            if time.monotonic() >= deadline:
                self._given_up = True
                raise self._away("is gone, and did not come back for", self._seconds)
            time.sleep(_GLANCE_SECONDS)
            waited = True
        answered()
        self._given_up = False
        self._outages += waited
        return waited

    def _marked(self) -> bool:
        if not self.makes_folders:
            # In a folder it is no request to anybody.
            self._count("gets")
        return self._inner.has(self._marker)

    def _count(self, kind: str, times: int = 1) -> None:
        request_counts.count(self._token, kind, times)

    def _reached(self, job: Callable[[], T]) -> T:
        """What came of a job that is tried until the store can be reached."""
        deadline: float | None = None
        while True:
            try:
                result = job()
                if deadline is not None:
                    self._given_up = False
                return result
            except StoreUnreachable as error:
                answered()
                now = time.monotonic()
                if deadline is None:
                    deadline = now + (0.0 if self._given_up else self._seconds)
                if now >= deadline:
                    self._given_up = True
                    raise self._away("cannot be reached, and was waited for", self._seconds) from error
                time.sleep(_GLANCE_SECONDS)

    def _ask(self, job: Callable[[], T], *, size: int | None = None) -> T:
        """What came of a request. ``size``: of what it writes, if it does."""
        job = partial(self._reached, job)
        if not self._inner.may_hang:
            return job()
        unanswered = _unanswered.get(self._token)
        if unanswered is not None and not unanswered.ended:
            raise self._silent(self._limit())
        request = Request(job)
        limit = self._limit(size or 0)
        try:
            while not request.wait(limit):
                if size is not None or not self._answers():
                    _unanswered[self._token] = request
                    raise self._silent(limit)
            return request.result()
        finally:
            # Nor does whoever is interrupted want it any more.
            request.given_up = not request.ended

    def _answers(self) -> bool:
        return Request(partial(self._inner.has, self._marker)).wait(self._limit())

    def _limit(self, size: int = 0) -> float:
        """After how many seconds a request hangs."""
        return max(self._seconds, _LEAST_SECONDS) + size / _LEAST_BYTES_PER_SECOND

    def _silent(self, seconds: float) -> StoreAway:
        return self._away("does not answer, and was waited for", seconds)

    def _away(self, how: str, seconds: float) -> StoreAway:
        return StoreAway(
            f"The backup store {self.path} {how} {seconds:.3g} s.",
            remedy="Bring it back where it was, then start the query again; nothing was put in its place.",
            path=self.path,
            seconds=seconds,
        )
