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
from afspark.resident.segment import Segment


@dataclass(frozen=True)
class SegmentAddress:
    """The segment in ``directory`` of a query with its ``checkpoint`` there (implements `residence.Address`)."""

    directory: Path
    checkpoint: str = ""

    def examine(self) -> Found:
        return examine(self.directory)

    @contextmanager
    def create(self, identity: Identity, incarnation: Incarnation) -> Iterator[Segment]:
        """A new segment in place of whatever is there, closed again at the end."""
        segment = Segment.create(self.directory, identity, incarnation, restoring=True)
        try:
            yield segment
        finally:
            segment.close()

    def open(self) -> Segment | None:
        segment = process_cache().get(self.directory)
        if segment is not None and self.checkpoint:
            segment.belong_to(self.checkpoint)
        return segment
