"""How generated input falls into batches, to compute what should have come out of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from afspark.cli.planning import MemoryLog
from afspark.sources import Chunk, Source

Result = TypeVar("Result")


class Prefixes:
    """The chunks of every batch of a source that gives a batch at most ``batch_bytes``."""

    def __init__(self, source: Source, batch_bytes: int) -> None:
        planner = source.planner(MemoryLog())
        start, end = planner.initial(), planner.discover()
        self.batches: list[Sequence[Any]] = []
        while start != end:
            stop = planner.limit(start, end, batch_bytes)
            self.batches.append(planner.chunks(start, stop))
            start = stop

    def per_batch(self, compute: Callable[[Sequence[Chunk]], Result]) -> list[Result]:
        return [compute(chunks) for chunks in self.batches]
