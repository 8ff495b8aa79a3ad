"""A pipeline of the shape of figure 5 in Carbone et al.: six operators, three of them behind a full exchange.

Generated records pass all operators; none is combined or left out on the way, so that each exchange moves every record.
Sources count what they have generated, the others keep per-key aggregates::

    generated → [by key] by-source → sizes → [by key] by-target → routes → [by key] by-route
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.api.stream import Inflow, Stream
from afspark.model.operator import Operator
from afspark.model.states import HashTable, Numeric, StateSpec
from afspark.sources import Packets

RECORD_BYTES = 24
#: What the generator makes at once; a batch is a whole number of them.
CHUNK_RECORDS = 1 << 15
BATCH_RECORDS = 32 * CHUNK_RECORDS
KEYS = 10**5
THETA = 1e5
"""Bytes that an approximate sum may miss: what AF-Stream's experiments allow heavy hitters."""

OPERATORS = ("generated", "by-source", "sizes", "by-target", "routes", "by-route")
AGGREGATE = "by-target"
"""The operator in the middle of the pipeline whose worker is lost in experiments."""


class Counted(Operator):
    """The beginning: counts what has been generated, like a source that keeps its offset."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"offset": Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["offset"].add(items.num_rows)
        return items


class Summed(Operator):
    """Sums the bytes of records by one of their columns, and sends the records on."""

    def __init__(self, column: str, *, by_key: bool) -> None:
        self.column = column
        self.key = (column,) if by_key else ()  # type: ignore[misc]

    def states(self) -> Mapping[str, StateSpec]:
        return {"sums": HashTable(key="int64", value="int64", divergence="max", operator_key=bool(self.key))}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["sums"].add(items.column(self.column), items.column("bytes"))
        return items


def with_route(items: pa.RecordBatch) -> pa.RecordBatch:
    """Gives records a third key, as many different ones as there are pairs of ``src`` and ``dst``."""
    route = items.column("src").to_numpy() ^ (items.column("dst").to_numpy() << np.int64(1))
    return pa.record_batch({"route": pa.array(route), "bytes": items.column("bytes")})


def topology(
    spark: SparkSession | None, tolerance: af.Tolerance, *, records: int, keys: int = KEYS, workers: int = 2
) -> af.StreamWriter:
    """All six operators under one tolerance; each of the three aggregates by key has ``keys`` keys.

    Without ``spark`` it can be checked, and not started.
    """
    settings: dict[str, Any] = {"workers": workers, "tolerance": tolerance}
    names = iter(OPERATORS)
    stream = Stream(spark, (Inflow(Packets(records, exponent=0.0, pairs=keys)),))
    counted = stream.apply(Counted(), name=next(names), keyed=False, **settings)
    by_source = counted.apply(Summed("src", by_key=True), name=next(names), keyed=True, **settings)
    sizes = by_source.apply(Summed("bytes", by_key=False), name=next(names), keyed=False, **settings)
    by_target = sizes.apply(Summed("dst", by_key=True), name=next(names), keyed=True, **settings)
    routes = by_target.map(with_route).apply(Summed("bytes", by_key=False), name=next(names), keyed=False, **settings)
    return routes.apply(Summed("route", by_key=True), name=next(names), keyed=True, **settings).writeStream


def one_aggregate(
    spark: SparkSession | None, tolerance: af.Tolerance, *, records: int, keys: int, workers: int = 1
) -> af.StreamWriter:
    """A single aggregate by key, for the recovery of a worker with many keys."""
    return aggregate_of(spark, tolerance, Packets(records, exponent=0.0, pairs=keys), workers=workers)


def aggregate_of(
    spark: SparkSession | None, tolerance: af.Tolerance, source: Packets, *, workers: int = 1
) -> af.StreamWriter:
    """A single aggregate by key of what ``source`` generates."""
    stream = Stream(spark, (Inflow(source),))
    summed = Summed("dst", by_key=True)
    return stream.apply(summed, name=AGGREGATE, keyed=True, workers=workers, tolerance=tolerance).writeStream
