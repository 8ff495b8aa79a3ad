"""The lease of a query's driver: one at a time, as far as a store without compare-and-set can tell.

Taking it opens an epoch, which fences whoever had it before: all that an older driver does afterwards is refused when
it writes its next record. So the lease is a courtesy that keeps a second start from ending a driver that lives; that
results are right does not depend on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from afspark.errors import StoreError, UsageError
from afspark.store.base import Store
from afspark.store.drivers import Driver, Notice, read_notice, still_running
from afspark.store.epochs import epoch_claims
from afspark.store.naming import EpochId, driver_name
from afspark.store.records import RecordLog

LEASE_SECONDS = 10.0
"""How long a driver elsewhere may be silent before it counts as dead."""

_RENEWALS = 4
_GLANCE_SECONDS = 0.1

#: The epochs of this process that have not been released: one that ended while the store was away could not say so.
_held_here: set[str] = set()


class Lease:
    """The right of this process to run the query of ``log``; renewed by a thread until it is released.

    Whether a driver on this machine lives is seen at once. One elsewhere counts as dead if it has not renewed its
    lease for ``seconds``, watched by the clock of this process alone; with 0 nobody elsewhere is waited for.
    """

    def __init__(self, store: Store, log: RecordLog, *, seconds: float = LEASE_SECONDS) -> None:
        if not seconds >= 0:
            raise UsageError(f"A lease needs a length of at least 0 seconds, not {seconds}.", seconds=seconds)
        self._store, self._log, self.seconds = store, log, seconds
        self._notice: Notice | None = None
        self._changing = threading.Lock()
        self._released = threading.Event()
        self._renewing: threading.Thread | None = None

    @property
    def held(self) -> bool:
        return self._notice is not None

    @property
    def interval(self) -> float:
        """Seconds between two renewals."""
        return self.seconds / _RENEWALS

    def take(self, *, takeover: bool = False) -> None:
        """Makes this process the driver; does nothing if it is already.

        `AnotherDriver` if another one lives. With ``takeover`` that one is fenced, and its end is waited for as long
        as a lease lasts: Spark's part of it may still write offsets until then.
        """
        with self._changing:
            if not self.held:
                self._take(takeover=takeover)

    def refuse_if_driven(self) -> None:
        """`AnotherDriver` if a process that lives runs the query; one elsewhere has to be watched for a while."""
        newest = epoch_claims(self._store).newest()
        if newest is not None:
            self._refuse_if_alive(newest)

    def release(self) -> None:
        """Says that this driver has ended; the next one need not wait."""
        with self._changing:
            notice, self._notice = self._notice, None
            if notice is None:
                return
            _held_here.discard(self._log.epoch)
            self._released.set()
            if self._renewing is not None:
                self._renewing.join()
                self._renewing = None
            self._say(replace(notice, ended=True))

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Leaves the lease as it was: one that is taken meanwhile is released."""
        held = self.held
        try:
            yield
        finally:
            if not held:
                self.release()

    def _take(self, *, takeover: bool) -> None:
        notice = Notice(driver=Driver.here(), seconds=self.seconds)
        if self._log.is_open:
            # Released and taken again, as when a query that has ended is asked for its results.
            self._log.refuse_if_superseded()
            self._store.put(driver_name(self._log.epoch), notice.to_bytes())
        else:
            before = epoch_claims(self._store).newest()
            if before is not None and not takeover:
                self._refuse_if_alive(before)
            self._log.announce(notice)
            if before is not None and takeover:
                self._await_end(before)
        self._notice = notice
        _held_here.add(self._log.epoch)
        if self.seconds:
            self._released = threading.Event()
            self._renewing = threading.Thread(target=self._renew, name="afspark-lease", daemon=True)
            self._renewing.start()

    def _renew(self) -> None:
        notice = self._notice
        while notice is not None and not self._released.wait(self.interval):
            notice = replace(notice, renewed=notice.renewed + 1)
            self._say(notice)

    def _say(self, notice: Notice) -> None:
        try:
            self._store.put(driver_name(self._log.epoch), notice.to_bytes())
        except StoreError:
            return  # whoever writes the next record says so

    def _refuse_if_alive(self, epoch: EpochId) -> None:
        found = read_notice(self._store, epoch)
        notice = Notice.from_bytes(found)
        if notice is not None and notice.driver.is_here:
            # Another query of this process, which may be about to end.
            self._await_end(epoch)
            notice = Notice.from_bytes(found := read_notice(self._store, epoch))
        lives = notice.driver.lives() if notice else None
        if not found or (notice is not None and _is_over(epoch, notice)) or lives is False:
            return
        if lives is None:
            notice = self._watched(epoch, found, notice.seconds if notice else LEASE_SECONDS)
        if notice is not None and not notice.ended:
            raise still_running(self._store, notice)

    def _watched(self, epoch: EpochId, found: bytes, seconds: float) -> Notice | None:
        """The notice as soon as it is renewed; None if that does not happen for so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(_GLANCE_SECONDS)
            renewed = read_notice(self._store, epoch)
            notice = Notice.from_bytes(renewed)
            if renewed != found and notice is not None:
                return notice
        return None

    def _await_end(self, epoch: EpochId) -> None:
        deadline = time.monotonic() + self.seconds
        while time.monotonic() < deadline:
            notice = Notice.from_bytes(read_notice(self._store, epoch))
            if notice is None or _is_over(epoch, notice) or notice.driver.lives() is False:
                return
            time.sleep(_GLANCE_SECONDS)


def _is_over(epoch: EpochId, notice: Notice) -> bool:
    """Whether a driver has ended, although its process may live."""
    return notice.ended or (notice.driver.is_here and str(epoch) not in _held_here)
