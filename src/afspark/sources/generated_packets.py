"""An endless supply of packet headers in which a few pairs of hosts cause much of the traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Planner, Source

PACKETS = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst", "bytes")])
MEAN_PAYLOAD = 770
"""Bytes of an average packet, near enough to turn traffic into rows."""

_CHUNK_ROWS = 1 << 15
_ROW_BYTES = 24


@dataclass(frozen=True)
class Packets(Source, kind="packets"):
    """``rows`` generated packets: 32-bit addresses ``src`` and ``dst``, ``bytes`` of payload (40 to 1500).

    Packets fall on ``pairs`` pairs of hosts after Zipf; with the defaults about a dozen pairs carry more than
    one per cent of the traffic each. A chunk depends only on ``seed`` and its number; a row weighs 24 bytes.
    """

    rows: int
    seed: int = 0
    exponent: float = 1.1
    pairs: int = 200_000

    def __post_init__(self) -> None:
        if self.rows < 0 or not 1 <= self.pairs <= 2**24 or not 0 <= self.exponent <= 8:
            raise UsageError(
                f"{self} cannot be generated.",
                remedy="Needs rows >= 0, 1 to 2**24 pairs, an exponent of 0 to 8.",
            )

    def schema(self) -> pa.Schema:
        return PACKETS

    def planner(self, log: LogStore) -> Planner:
        return EvenPlanner(self.rows, _CHUNK_ROWS, _ROW_BYTES)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        # Not before: whoever only plans needs no compiled kernels.
        from afspark.model.kernels.generate import block_key, fill_packets, zipf_cells

        source, target, size = (np.empty(chunk.units, np.int64) for _ in PACKETS)
        key, network = block_key(self.seed, chunk.index), block_key(self.seed, -1)
        fill_packets(key, network, zipf_cells(self.pairs, self.exponent), source, target, size)
        yield pa.record_batch([pa.array(source), pa.array(target), pa.array(size)], schema=PACKETS)
