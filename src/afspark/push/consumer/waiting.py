"""Whether any receiver of a source has something for its workers; asked by the process in which Spark plans."""

from __future__ import annotations

import json
import time
from typing import Any

from pyarrow import flight

from afspark.push.wire.announcements import announced
from afspark.push.wire.messages import WAITING
from afspark.push.wire.security import Access

#: How long to wait for something before Spark is told that there is nothing.
PATIENCE_SECONDS = 0.2
_GLANCE_SECONDS = 0.01


class Watch:
    """Asks the receivers whose addresses are in a folder of the store."""

    def __init__(self, store: Any, access: Access) -> None:
        self._store, self._access = store, access
        self._clients: dict[str, flight.FlightClient] = {}

    def anything(self, seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether something waits, now or within so many seconds."""
        deadline = time.monotonic() + seconds
        addresses = [one.address for one in announced(self._store)]
        while True:
            if any(self._waits_at(address) for address in addresses):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_GLANCE_SECONDS)

    def _waits_at(self, address: str) -> bool:
        if address not in self._clients:
            self._clients[address] = self._access.connect(address)
        options = flight.FlightCallOptions(timeout=2.0, headers=self._access.headers())
        try:
            (answer,) = self._clients[address].do_action(flight.Action(WAITING, b""), options)
        except flight.FlightError:
            self._clients.pop(address).close()
            return False
        return bool(json.loads(answer.body.to_pybytes())["waiting"])
