"""Two endless streams of visits to hosts, some of which both streams know: input for joins. Synthetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

VISITS = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("dst", "second", "bytes")])
VISIT_BYTES = 24

_CHUNK_ROWS = 1 << 15


@dataclass(frozen=True)
class Visits(Source, kind="visits"):
    """``rows`` generated packets of one ``stream`` (0 or 1): host ``dst``, ``second``, ``bytes`` of payload.

    Shaped like two packet traces of the same hours: ``per_second`` packets fall on ``hosts`` hosts after Zipf. A
    share ``overlap`` of the hosts has the same address in both streams of a ``seed``, the others meet by rare
    chance only; so the streams agree in (dst, second) for about per_second² · Σ p² pairs a second, summed over
    shared hosts of chance p. With the defaults that is 3,500 to 15,000, by which of the busiest hosts a
    seed shares, and a packet meets at most about a hundred others, as in AF-Stream's traces.
    A chunk depends only on ``seed``, ``stream`` and its number; a row is 24 bytes.
    """

    rows: int
    stream: int = 0
    seed: int = 0
    overlap: float = 0.5
    per_second: int = 10_000
    hosts: int = 200_000
    exponent: float = 0.7

    def __post_init__(self) -> None:
        sound = (
            self.rows >= 0
            and self.stream in (0, 1)
            and 0 <= self.overlap <= 1
            and self.per_second >= 1
            and 1 <= self.hosts <= 2**24
            and 0 <= self.exponent <= 8
        )
        if not sound:
            raise UsageError(
                f"{self} cannot be generated.",
                remedy="Needs rows >= 0, stream 0 or 1, an overlap of 0 to 1, 1 to 2**24 hosts, an exponent of 0 to 8.",
            )

    def schema(self) -> pa.Schema:
        return VISITS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, VISIT_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, fill_visits, zipf_cells

        columns = [np.empty(chunk.units, np.int64) for _ in VISITS]
        network = block_key(self.seed, -1)
        key = block_key(int(network.view(np.int64)) ^ self.stream, chunk.index)
        shared = np.uint64(min(int(self.overlap * 2.0**64), 2**64 - 1))
        cells, first = zipf_cells(self.hosts, self.exponent), chunk.index * _CHUNK_ROWS
        fill_visits(key, network, cells, shared, self.stream, first, self.per_second, *columns)
        yield pa.record_batch([pa.array(column) for column in columns], schema=VISITS)
