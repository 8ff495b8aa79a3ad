"""How often a receiver ended without being closed: each such end may have cost what it was allowed to lose."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from afspark.errors import StoreError
from afspark.store import Store, seal, unseal

_OPENED, _CLOSED = "opened", "closed"


@dataclass(frozen=True)
class Ended:
    """The tenures before the present one that were never closed."""

    failures: int = 0
    #: how many items each of their lanes can have lost by that; infinite where no number limited it
    lost: float = 0.0


class Tenure:
    """The openings and closings of one receiver, each an object in its folder of the backup store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name: str | None = None

    def open(self, allowed: Callable[[int], float]) -> Ended:
        """Begins a tenure in which each lane may lose ``allowed(failures)`` items; how those before it have ended."""
        names = self._store.list("")
        opened = {name.partition("/")[2] for name in names if name.startswith(f"{_OPENED}/")}
        closed = {name.partition("/")[2] for name in names if name.startswith(f"{_CLOSED}/")}
        failed = opened - closed
        items = allowed(len(failed))
        self._name = f"{len(opened):08d}-{secrets.token_hex(4)}"
        self._store.put(f"{_OPENED}/{self._name}", seal({"kind": _OPENED, "items": items}, {}))
        return Ended(len(failed), self._lost(failed, allowed(0)))

    def close(self) -> None:
        """Ends it in order: nothing was lost."""
        if self._name is not None:
            self._store.put(f"{_CLOSED}/{self._name}", seal({"kind": _CLOSED}, {}))
            self._name = None

    def _lost(self, failed: Iterable[str], unknown: float) -> float:
        """What tenures can have lost by ending, each by what it was allowed at the time, or ``unknown``."""
        lost = []
        for name in failed:
            try:
                lost.append(float(unseal(self._store.get(f"{_OPENED}/{name}"), name).meta["items"]))
            except (StoreError, KeyError):
                lost.append(unknown)
        return math.fsum(lost)
