"""A worker's segment as its task sees it, before it is known whether there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from afspark.numbers import Incarnation
from afspark.protocol.lifecycle import Found, Identity
from afspark.resident.cache import process_cache
from afspark.resident.header import examine
from afspark.resident.segment import LOCK_SECONDS, Segment


@dataclass(frozen=True)
class SegmentAddress:
    """The segment in ``directory`` of a query with its ``checkpoint`` there (implements `residence.Address`)."""

    directory: Path
    checkpoint: str = ""

    def examine(self) -> Found:
        return examine(self.directory)

    @contextmanager
    def create(self, identity: Identity, incarnation: Incarnation, *, secondary: bool = False) -> Iterator[Segment]:
        """A new segment in place of whatever is there, closed again at the end."""
        segment = Segment.create(self.directory, identity, incarnation, restoring=True, secondary=secondary)
        try:
            yield segment
        finally:
            segment.close()

    def drop_secondary(self, incarnation: Incarnation) -> None:
        """Removes the segment if it is a secondary of that incarnation: one that was promoted stays."""
        segment = self.open()
        if segment is None:
            return
        with segment.lock(LOCK_SECONDS):
            found = segment.found()
            if found.secondary and found.incarnation == incarnation:
                segment.destroy()

    def drop_before(self, incarnation: Incarnation) -> None:
        """Removes the segment if it is of an incarnation before that one; `SegmentBusy` at once if somebody works on
        it.
        """
        segment = self.open()
        if segment is None:
            return
        with segment.lock(0.0):
            if segment.found().incarnation < incarnation:
                segment.destroy()

    def drop_others_in_number(self, workers: int) -> None:
        """Removes the segment if it is of a worker that was one of more or fewer than ``workers``."""
        segment = self.open()
        if segment is None:
            return
        with segment.lock(LOCK_SECONDS):
            if segment.found().identity.workers != workers:
                segment.destroy()

    def open(self) -> Segment | None:
        segment = process_cache().get(self.directory)
        if segment is not None and self.checkpoint:
            segment.belong_to(self.checkpoint)
        return segment
