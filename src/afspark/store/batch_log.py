"""Small objects that drivers write about batches, below the number of the batch and the epoch of its driver."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from afspark.numbers import Batch
from afspark.store.base import Store
from afspark.store.format import seal
from afspark.store.naming import EpochId
from afspark.store.reading import Damage, read_sealed

#: How many objects gather before those that nobody needs are deleted.
_SLACK = 64


@dataclass(frozen=True)
class BatchEntry:
    """What the driver of ``epoch`` has written when ``batch`` had ended."""

    epoch: EpochId
    batch: Batch
    name: str


class BatchLog:
    """The objects of one kind, in a folder of that name."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store, self._kind = store, kind
        self._name = re.compile(rf"{kind}/(\d{{12,}})/([^/]+)")
        # Drivers before this one may have left more than a driver lets gather.
        self._since_pruned = _SLACK

    def put(self, batch: Batch, epoch: str, meta: Mapping[str, Any]) -> None:
        self._store.put(f"{self._kind}/{batch:012d}/{epoch}", seal({"kind": self._kind, **meta}, {}))
        self._since_pruned += 1

    def entries(self) -> list[BatchEntry]:
        """What there is, that of the newest driver last; one listing."""
        matches = [match for name in self._store.list(self._kind) if (match := self._name.fullmatch(name))]
        found = [(EpochId.parse(match[2]), Batch(int(match[1])), match[0]) for match in matches]
        entries = [BatchEntry(epoch, batch, name) for epoch, batch, name in found if epoch is not None]
        return sorted(entries, key=lambda entry: (entry.epoch, entry.batch))

    def contents(self, entries: Iterable[BatchEntry]) -> list[tuple[Batch, dict[str, Any]]]:
        """What they say, in the same order, without those that cannot be read."""
        wanted = list(entries)
        found = read_sealed(self._store, [entry.name for entry in wanted])
        return [
            (entry.batch, one.meta) for entry, one in zip(wanted, found, strict=True) if not isinstance(one, Damage)
        ]

    def forget_after(self, batch: Batch) -> None:
        """Deletes what was written of batches after that one."""
        self._store.delete([entry.name for entry in self.entries() if entry.batch > batch])

    def prune(self, before: Batch, needed: Collection[Batch] = ()) -> None:
        """Deletes what was written of batches before that one, but for those ``needed``, when enough has gathered."""
        if self._since_pruned < _SLACK:
            return
        self._since_pruned = 0
        old = [entry for entry in self.entries() if entry.batch < before and entry.batch not in needed]
        self._store.delete([entry.name for entry in old])

    def clear(self) -> None:
        """Deletes everything."""
        self._store.delete([entry.name for entry in self.entries()])
