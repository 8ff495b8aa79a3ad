"""Whether any receiver of a source has something for its workers; asked by the process in which Spark plans."""

from __future__ import annotations

from typing import Any

from afspark.clock import Clock, SystemClock
from afspark.push.wire.announcements import announced
from afspark.push.wire.messages import WAITING
from afspark.push.wire.push_errors import PushError
from afspark.push.wire.security import Access
from afspark.push.wire.transport import Connection
from afspark.push.wire.worker_messages import Waiting

#: How long to wait for something before Spark is told that there is nothing.
PATIENCE_SECONDS = 0.2
_GLANCE_SECONDS = 0.01
_CALL_SECONDS = 2.0


class Watch:
    """Asks the receivers whose addresses are in a folder of the store."""

    def __init__(self, store: Any, access: Access, clock: Clock | None = None) -> None:
        self._store, self._access, self._clock = store, access, clock or SystemClock()
        self._connections: dict[str, Connection] = {}

    def anything(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether something waits, now or within so many seconds."""
        deadline = self._clock.monotonic() + seconds
        addresses = [one.address for one in announced(self._store)]
        while True:
            if any(self._waits_at(address) for address in addresses):
                return True
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(_GLANCE_SECONDS)

    def _waits_at(self, address: str) -> bool:
        if address not in self._connections:
            self._connections[address] = self._access.connect(address)
        try:
            return self._connections[address].act(WAITING, None, Waiting, seconds=_CALL_SECONDS).waiting
        except PushError:
            self._connections.pop(address).close()
            return False
