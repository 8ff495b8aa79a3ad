"""How often a receiver ended without being closed: each such end may have cost what it was allowed to lose."""

from __future__ import annotations

import secrets

from afspark.store import Store, seal

_OPENED, _CLOSED = "opened", "closed"


class RestartCount:
    """The openings and closings of one receiver, each an object in its folder of the backup store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name: str | None = None

    def open(self) -> int:
        """The number of earlier openings that were never closed. Another one begins."""
        names = self._store.list("")
        opened = {name.partition("/")[2] for name in names if name.startswith(f"{_OPENED}/")}
        closed = {name.partition("/")[2] for name in names if name.startswith(f"{_CLOSED}/")}
        self._name = f"{len(opened):08d}-{secrets.token_hex(4)}"
        self._store.put(f"{_OPENED}/{self._name}", seal({"kind": _OPENED}, {}))
        return len(opened - closed)

    def close(self) -> None:
        """Notes that this opening ended in order: nothing was lost."""
        if self._name is not None:
            self._store.put(f"{_CLOSED}/{self._name}", seal({"kind": _CLOSED}, {}))
            self._name = None
