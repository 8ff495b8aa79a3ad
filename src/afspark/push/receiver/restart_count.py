"""How often a receiver ended without being closed: each such end may have cost what it was allowed to lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from afspark.errors import StoreError
from afspark.store import Store, seal, unseal
from afspark.store.claims import ClaimId, Claims

_OPENED, _CLOSED = "opened", "closed"


@dataclass(frozen=True)
class EarlierFailures:
    """The openings before the present one that were never closed."""

    failures: int = 0
    #: how many items each lane can have lost by that; infinite where no number limited it
    lost: float = 0.0


class RestartCount:
    """The openings and closings of one receiver, each an object in its folder of the backup store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened, self._closed = (Claims(store, folder, ClaimId, who="receivers") for folder in (_OPENED, _CLOSED))
        self._mine: ClaimId | None = None

    def open(self, allowed: Callable[[int], float]) -> EarlierFailures:
        """The openings before this one that were never closed. In this one a lane may lose ``allowed(failures)`` items.

        Of two processes that open the same receiver at once, one may count twice: too many failures allow too little.
        """
        failed = self._opened.present() - self._closed.present()
        self._mine = self._opened.take(seal({"kind": _OPENED, "items": allowed(len(failed))}, {}))
        return EarlierFailures(len(failed), self._lost(failed, allowed(0)))

    def close(self) -> None:
        """Notes that the receiver has ended in order: nothing was lost."""
        if self._mine is not None:
            self._store.put(f"{_CLOSED}/{self._mine}", seal({"kind": _CLOSED}, {}))
            self._mine = None

    def _lost(self, failed: Iterable[ClaimId], unknown: float) -> float:
        """What they can have lost by ending, each by what it was allowed at the time, or ``unknown``."""
        lost = []
        for claim in failed:
            name = f"{_OPENED}/{claim}"
            try:
                lost.append(float(unseal(self._store.get(name), name).meta["items"]))
            except (StoreError, KeyError):
                lost.append(unknown)
        return math.fsum(lost)
