"""Generated packets that come in large batches first, until they have filled a state, and then as batches are limited."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.bench.topology import CHUNK_RECORDS, RECORD_BYTES
from afspark.sources import Packets
from afspark.sources.source import EvenPlanner, LogStore, Offset, Planner

_FILLING_CHUNKS = 16


@dataclass(frozen=True)
class FillingPackets(Packets, kind="filling-packets"):
    """`Packets` of which the first ``filling`` chunks come in batches of half a million records."""

    filling: int = 0

    def planner(self, log: LogStore) -> Planner:
        return FillingPlanner(self.rows, self.filling)


class FillingPlanner(EvenPlanner):
    """Chunks of packets, the first ones many at once."""

    def __init__(self, rows: int, filling: int) -> None:
        super().__init__(rows, CHUNK_RECORDS, RECORD_BYTES)
        self._filling = filling

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        if start["chunks"] >= self._filling:
            return super().limit(start, end, max_bytes)
        return {"chunks": min(end["chunks"], self._filling, start["chunks"] + _FILLING_CHUNKS)}
