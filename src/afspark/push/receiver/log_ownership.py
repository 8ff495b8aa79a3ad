"""Who may acknowledge out of a lane's log: the receiver that took it last.

A receiver that starts claims the log, and reads it after that. One that has written to the log looks for newer claims
before it acknowledges. So whatever an older receiver acknowledges out of the log was there when the newer
one read it: being replaced without knowing it costs no more than dying, the allowance. It takes a store whose listings
show what was put before.
"""

from __future__ import annotations

from afspark.push.wire.push_errors import Replaced
from afspark.store import Store
from afspark.store.claims import ClaimId, Claims


class LogOwnership:
    """One request to the store for each `check`."""

    def __init__(self, store: Store, lane: int) -> None:
        self._lane = lane
        self._claims = Claims(store, f"reign-{lane:05d}", ClaimId, who="receivers")
        self._mine: ClaimId | None = None

    def take(self) -> None:
        """Claims the log: from now on nobody else acknowledges out of it."""
        self._mine = self._claims.take(drop_older=True)

    def check(self) -> None:
        """`Replaced` if another receiver has taken the lane. Before `take` nobody asks."""
        if self._mine is not None and self._claims.newer(self._mine) is not None:
            raise Replaced(
                f"Another receiver has taken lane {self._lane}.",
                remedy="Connect to that one and send again what was not acknowledged.",
                lane=self._lane,
            )
