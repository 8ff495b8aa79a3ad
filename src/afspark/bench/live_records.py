"""Records that come as time goes by, with the bursts of a day that lasts minutes, and their sums over a sliding window.

The workload of StreamMine3G's figure 4: the state follows the throughput, because a window holds what came of late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.api.stream import Inflow, Stream
from afspark.model.operator import Operator
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Sliding
from afspark.sources.bursts import Bursts, bursts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import EvenPlanner, LogStore, Offset, Planner, Source

RECORDS = pa.schema(
    [
        pa.field("time", pa.float64(), nullable=False),
        pa.field("key", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
RECORD_BYTES = 24
CHUNK_RECORDS = 1 << 11
OPERATOR = "sums"
WINDOW_SECONDS, SLIDE_SECONDS = 10.0, 1.0


@dataclass(frozen=True)
class LiveRecords(Source, kind="live-records"):
    """``rows`` records in ``seconds`` since ``began`` (in seconds since 1970): a record cannot be read before its time.

    Traffic has the peaks of `Bursts`; keys are drawn evenly from ``keys``. A chunk depends on ``seed`` and its number.
    """

    rows: int
    seconds: float
    began: float
    seed: int = 0
    keys: int = 200_000

    def schema(self) -> pa.Schema:
        return RECORDS

    def planner(self, log: LogStore) -> Planner:
        return LivePlanner(self.rows, self.seconds, self.began, bursts(self.seed))

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        draw = np.random.default_rng((self.seed, chunk.index))
        days = bursts(self.seed).times(chunk.index * CHUNK_RECORDS, chunk.units, self.rows)
        key, size = draw.integers(0, self.keys, chunk.units), draw.integers(40, 1501, chunk.units)
        yield pa.record_batch([pa.array(days * self.seconds), pa.array(key), pa.array(size)], schema=RECORDS)


class LivePlanner(EvenPlanner):
    """Chunks exist once all of their records have happened; the first one at once, so that a query can warm up."""

    def __init__(
        self, rows: int, seconds: float, began: float, day: Bursts, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(rows, CHUNK_RECORDS, RECORD_BYTES)
        self._rows, self._seconds, self._began, self._day, self._now = rows, seconds, began, day, now
        self._found = 1

    def discover(self) -> Offset:
        last, passed = super().discover()["chunks"], (self._now() - self._began) / self._seconds
        while self._found < last and self._end_of(self._found) <= passed:
            self._found += 1
        return {"chunks": self._found}

    def _end_of(self, chunk: int) -> float:
        """When its last record happens, as a part of the day."""
        return float(self._day.times(min((chunk + 1) * CHUNK_RECORDS, self._rows) - 1, 1, self._rows)[0])


class LiveSums(Operator):
    """Sums the bytes of records by key."""

    key = ("key",)

    def states(self) -> Mapping[str, StateSpec]:
        return {"sums": HashTable(key="int64", value="int64", divergence="max", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["sums"].add(items.column("key"), items.column("bytes"))


def live_sums(spark: SparkSession | None, tolerance: af.Tolerance, source: LiveRecords) -> af.StreamWriter:
    """One worker that sums up what came in the last ten seconds, by key."""
    window = Sliding(WINDOW_SECONDS, SLIDE_SECONDS, column="time")
    stream = Stream(spark, (Inflow(source),))
    return stream.apply(
        LiveSums(), name=OPERATOR, keyed=True, workers=1, tolerance=tolerance, window=window
    ).writeStream
