"""Segments that a process keeps open from batch to batch, so that their pages stay mapped."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from afspark.numbers import Incarnation
from afspark.protocol.lifecycle import Identity
from afspark.resident.segment import LOCK_SECONDS, Segment


class SegmentCache:
    """At most ``capacity`` opened segments, those used last.

    A segment whose folder was destroyed or replaced is never handed out: its successor is opened, if there
    is one. The cache closes the segments it holds; callers do not.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._capacity = capacity
        self._segments: OrderedDict[Path, Segment] = OrderedDict()

    def __len__(self) -> int:
        return len(self._segments)

    def get(self, directory: Path) -> Segment | None:
        """The segment that is in ``directory`` now; None if there is none that can be read."""
        self._drop_dead()
        segment = self._segments.get(directory) or Segment.open(directory)
        if segment is not None:
            self._keep(segment)
        return segment

    def create(
        self,
        directory: Path,
        identity: Identity,
        incarnation: Incarnation,
        *,
        restoring: bool = False,
        timeout_seconds: float = LOCK_SECONDS,
    ) -> Segment:
        """`Segment.create`, kept for the next batch."""
        self.forget(directory)
        segment = Segment.create(directory, identity, incarnation, restoring=restoring, timeout_seconds=timeout_seconds)
        self._keep(segment)
        return segment

    def forget(self, directory: Path) -> None:
        """Closes the segment if it is held here; the folder stays."""
        segment = self._segments.pop(directory, None)
        if segment is not None:
            segment.close()

    def clear(self) -> None:
        """Closes all segments."""
        for directory in list(self._segments):
            self.forget(directory)

    def _drop_dead(self) -> None:
        # A mapping keeps the memory of a removed file: dead segments must not wait for their turn.
        for directory, segment in list(self._segments.items()):
            if not segment.held and not segment.is_current():
                self.forget(directory)

    def _keep(self, segment: Segment) -> None:
        self._segments[segment.directory] = segment
        self._segments.move_to_end(segment.directory)
        for directory, oldest in list(self._segments.items()):
            if len(self._segments) <= self._capacity:
                break
            if oldest is not segment and not oldest.held:
                self.forget(directory)


_caches: dict[int, SegmentCache] = {}


def process_cache() -> SegmentCache:
    """The cache of this process. A forked process starts with its own, because it must not share locks."""
    return _caches.setdefault(os.getpid(), SegmentCache())
