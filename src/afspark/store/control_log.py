"""What a controller knows, over restarts: measurements and decisions, in one small object, replaced now and then.

Nothing rests on it but estimates: what cannot be read is measured again. Every driver writes below its own epoch, and
whoever comes later puts together what all of them have left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from afspark.store.base import Store
from afspark.store.format import seal
from afspark.store.reading import Damage, read_sealed

CONTROL = "control"

_NAME = re.compile(rf"{CONTROL}/([^/]+)/(\d{{8,}})")

_KEPT = 2
"""How many of the newest objects stay: one may have been torn by a crash."""


class ControlLog:
    """What was learned of the units of one query."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written = 0

    def read(self) -> tuple[list[Mapping[str, Any]], list[Damage]]:
        """What drivers have left, oldest first, and what of it cannot be read."""
        names = self._names()
        found = read_sealed(self._store, names)
        # A driver at work replaces its own meanwhile.
        damaged = [one for one in found if isinstance(one, Damage) and one.reason != "missing"]
        return [one.meta for one in found if not isinstance(one, Damage)], damaged

    def write(self, epoch: str, known: Mapping[str, Any]) -> None:
        """Makes durable all that the driver of ``epoch`` knows, what it has read included; older objects go."""
        self._written += 1
        self._store.put(f"{CONTROL}/{epoch}/{self._written:08d}", seal(dict(known), {}))
        if self._written <= _KEPT:
            # Afterwards nothing of others is left that would have to go.
            self._store.delete(self._names()[:-_KEPT])
        else:
            self._store.delete([f"{CONTROL}/{epoch}/{self._written - _KEPT:08d}"])

    def _names(self) -> list[str]:
        """Those of all objects, oldest first: epochs sort by their numbers."""
        return sorted(name for name in self._store.list(CONTROL) if _NAME.fullmatch(name))
