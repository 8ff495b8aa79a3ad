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
from afspark.model.kernels.plain_arrays import Array
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
    In the ``lead`` seconds before, a chunk comes every second, so that a query can warm up. Times count from there on.
    """

    rows: int
    seconds: float
    began: float
    seed: int = 0
    keys: int = 200_000
    lead: int = 0

    def schema(self) -> pa.Schema:
        return RECORDS

    def planner(self, log: LogStore) -> Planner:
        return LivePlanner(self.rows, self.seconds, self.began, bursts(self.seed), lead=self.lead)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        draw = np.random.default_rng((self.seed, chunk.index))
        key, size = draw.integers(0, self.keys, chunk.units), draw.integers(40, 1501, chunk.units)
        yield pa.record_batch([pa.array(self._times(chunk)), pa.array(key), pa.array(size)], schema=RECORDS)

    def _times(self, chunk: NumberedChunk) -> Array:
        if chunk.index < self.lead:
            return chunk.index + np.arange(chunk.units) / chunk.units
        first = (chunk.index - self.lead) * CHUNK_RECORDS
        return self.lead + bursts(self.seed).times(first, chunk.units, self.rows) * self.seconds


class LivePlanner(EvenPlanner):
    """Chunks exist once all of their records have happened; the first one at once. ``lead``: so many come before."""

    def __init__(
        self,
        rows: int,
        seconds: float,
        began: float,
        day: Bursts,
        *,
        lead: int = 0,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(lead * CHUNK_RECORDS + rows, CHUNK_RECORDS, RECORD_BYTES)
        self._rows, self._seconds, self._began, self._day = rows, seconds, began, day
        self._lead, self._now = lead, now
        self._found = 1

    def discover(self) -> Offset:
        last, passed = super().discover()["chunks"], self._now() - self._began
        while self._found < last and self._end_of(self._found) <= passed:
            self._found += 1
        return {"chunks": self._found}

    def _end_of(self, chunk: int) -> float:
        """When its last record happens, in seconds since the day began."""
        if chunk < self._lead:
            return float(chunk + 1 - self._lead)
        newest = min((chunk - self._lead + 1) * CHUNK_RECORDS, self._rows) - 1
        return self._seconds * float(self._day.times(newest, 1, self._rows)[0])


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
