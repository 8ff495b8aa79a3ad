"""How often a receiver ended without being closed: each such end may have cost what it was allowed to lose."""

from __future__ import annotations

from afspark.store import Store, seal
from afspark.store.claims import ClaimId, Claims

_OPENED, _CLOSED = "opened", "closed"


class RestartCount:
    """The openings and closings of one receiver, each an object in its folder of the backup store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened, self._closed = (Claims(store, folder, ClaimId, who="receivers") for folder in (_OPENED, _CLOSED))
        self._mine: ClaimId | None = None

    def open(self) -> int:
        """How many openings before this one were never closed; notes this one.

        Of two processes that open the same receiver at once, one may count twice: too many failures allow too little.
        """
        self._mine = self._opened.take(seal({"kind": _OPENED}, {}))
        return len(self._opened.present() - self._closed.present() - {self._mine})

    def close(self) -> None:
        """Notes that the receiver has ended in order: nothing was lost."""
        if self._mine is not None:
            self._store.put(f"{_CLOSED}/{self._mine}", seal({"kind": _CLOSED}, {}))
            self._mine = None
