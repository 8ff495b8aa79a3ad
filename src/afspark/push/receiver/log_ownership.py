"""Who may acknowledge out of a lane's log: the receiver that took it last.

A receiver that starts puts a claim with a higher number into the store, and reads the log after that. One that has
written to the log looks for higher claims before it acknowledges. So whatever an older receiver acknowledges out of
the log was there when the newer one read it: being replaced without knowing it costs no more than dying, the allowance.
It takes a store whose listings show what was put before.
"""

from __future__ import annotations

import secrets

from afspark.push.wire.push_errors import Replaced
from afspark.store import Store


class LogOwnership:
    """One request to the store for each `check`."""

    def __init__(self, store: Store, lane: int) -> None:
        self._store = store
        self._lane = lane
        self._folder = f"reign-{lane:05d}"
        self._mine = ""

    def take(self) -> None:
        """From now on nobody else acknowledges out of the log."""
        others = self._store.list(self._folder)
        number = max(map(_number, others), default=-1) + 1
        # Two that start at the same moment have different names; the higher one counts.
        self._mine = f"{self._folder}/{number:012d}-{secrets.token_hex(4)}"
        self._store.put(self._mine, b"")
        self._store.delete(others)

    def check(self) -> None:
        """`Replaced` if another receiver has taken the lane. Before `take` nobody asks."""
        if self._mine and any(name > self._mine for name in self._store.list(self._folder)):
            raise Replaced(
                f"Another receiver has taken lane {self._lane}.",
                remedy="Connect to that one and send again what was not acknowledged.",
                lane=self._lane,
            )


def _number(name: str) -> int:
    digits = name.rpartition("/")[2].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1
