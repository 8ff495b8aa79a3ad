"""Where each batch of pushed items ended on its lanes, if no record says so yet: a lost worker applies it once more.

One small object a batch, below the batch's number and the epoch of the driver that ran it. A batch that ran again under
a later driver has ended where that one says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.commits import LanePositions
from afspark.store.format import seal
from afspark.store.naming import EpochId
from afspark.store.reading import Damage, read_sealed

POSITIONS = "positions"
_NAME = re.compile(rf"{POSITIONS}/(\d{{12,}})/([^/]+)")

#: How many objects gather before those that nobody needs are deleted.
_SLACK = 64


class PositionLog:
    """The positions of the batches of one query."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since_pruned = 0

    def write(self, batch: Batch, epoch: str, lanes: Mapping[str, LanePositions]) -> None:
        """Makes durable where ``batch`` has ended, by source and lane."""
        meta = {
            "kind": "positions",
            "lanes": {name: {str(lane): dict(ends) for lane, ends in of.items()} for name, of in lanes.items()},
        }
        self._store.put(f"{POSITIONS}/{batch:012d}/{epoch}", seal(meta, {}))
        self._since_pruned += 1

    def read(self, first: Batch, last: Batch) -> dict[Batch, dict[str, dict[int, dict[str, int]]]]:
        """Where the batches from ``first`` to ``last`` have ended, as far as that can be read."""
        newest: dict[Batch, tuple[EpochId, str]] = {}
        for name, batch, epoch in self._entries():
            if first <= batch <= last and (batch not in newest or epoch > newest[batch][0]):
                newest[batch] = (epoch, name)
        batches = sorted(newest)
        found = read_sealed(self._store, [newest[batch][1] for batch in batches])
        return {
            batch: {
                name: {int(lane): dict(ends) for lane, ends in of.items()} for name, of in sealed.meta["lanes"].items()
            }
            for batch, sealed in zip(batches, found, strict=True)
            if not isinstance(sealed, Damage)
        }

    def prune(self, before: Batch) -> None:
        """Deletes what is known of batches before that one, when enough of it has gathered."""
        if self._since_pruned < _SLACK:
            return
        self._since_pruned = 0
        self._store.delete([name for name, batch, _ in self._entries() if batch < before])

    def _entries(self) -> list[tuple[str, Batch, EpochId]]:
        matches = [match for name in self._store.list(POSITIONS) if (match := _NAME.fullmatch(name))]
        found = [(match[0], Batch(int(match[1])), EpochId.parse(match[2])) for match in matches]
        return [(name, batch, epoch) for name, batch, epoch in found if epoch is not None]
