"""How finite input falls into batches, known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afspark.cli.algorithm_options import DEFAULT_BATCH_BYTES
from afspark.sources import Chunk, Source
from afspark.sources.chunks import InputChunk


@dataclass(frozen=True)
class Plan:
    """All chunks of the input as of now, the size of a batch and how many batches there will be."""

    chunks: Sequence[Chunk]
    batch_bytes: int
    batches: int

    @property
    def total_bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)


class MemoryLog:
    """The log of a planner that is thrown away."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        self._objects[name] = data

    def get(self, name: str) -> bytes:
        return self._objects[name]

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self._objects if name.startswith(f"{prefix}/"))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._objects.pop(name, None)


def plan(*sources: Source, workers: int, batch_bytes: int | None = None, kills: int = 0) -> Plan:
    """Plans ``sources``, each of which gives every batch up to ``batch_bytes``; chunks of several sources are
    `InputChunk`s. Without ``batch_bytes`` batches are small enough for ``kills`` failures.
    """
    if batch_bytes is not None:
        return _plan(sources, batch_bytes, workers)
    found = _plan(sources, DEFAULT_BATCH_BYTES, workers)
    wanted = 2 * kills + 2 if kills else 1
    size = min(DEFAULT_BATCH_BYTES, found.total_bytes // wanted)
    while found.batches < wanted and size > 0:
        found = _plan(sources, size, workers)
        size //= 2
    return found


def _plan(sources: Sequence[Source], batch_bytes: int, workers: int) -> Plan:
    plans = [_plan_one(source, batch_bytes, workers) for source in sources]
    chunks: Sequence[Chunk] = plans[0].chunks
    if len(plans) > 1:
        chunks = [
            InputChunk(bytes=chunk.bytes, input=place, chunk=chunk)
            for place, one in enumerate(plans)
            for chunk in one.chunks
        ]
    return Plan(chunks, batch_bytes, max(one.batches for one in plans))


def _plan_one(source: Source, batch_bytes: int, workers: int) -> Plan:
    # The same chunks as the query will make of it.
    sized = source.divided(batch_bytes, workers)
    planner = sized.planner(MemoryLog())
    start, end = planner.initial(), planner.discover()
    chunks = planner.chunks(start, end)
    batches = 0
    while start != end:
        start = planner.limit(start, end, batch_bytes)
        batches += 1
    return Plan(chunks, batch_bytes, batches)
