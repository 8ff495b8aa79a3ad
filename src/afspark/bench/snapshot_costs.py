"""Runs of the topology under different tolerances, while nothing fails."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.interleave import Measure
from afspark.bench.kept_rounds import Contenders
from afspark.bench.rig import STORES
from afspark.bench.seen_batches import SeenBatches, costs
from afspark.bench.topology import BATCH_RECORDS, CHUNK_RECORDS, RECORD_BYTES, THETA, topology
from afspark.bench.watched_run import watched_run

INTERVALS = (0.2, 0.5, 1.0, 3.0, 10.0)
NONE, ASYNCHRONOUS, SYNCHRONOUS = "none", "asynchronous", "synchronous"
APPROXIMATE, MINIBATCH = "approximate", "mini-batch"
LEAST_BATCHES = 20


def batch_records(records: int) -> int:
    """Records of a batch, a whole number of the generator's chunks: short runs have at least twenty batches as well.

    >>> batch_records(10**8), batch_records(10**6)
    (1048576, 32768)
    """
    chunks = min(BATCH_RECORDS, records // LEAST_BATCHES) // CHUNK_RECORDS
    return max(1, chunks) * CHUNK_RECORDS


def one_run(
    spark: SparkSession,
    tolerance: af.Tolerance,
    *,
    records: int,
    workers: int = 2,
    store: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """What the topology costs under ``tolerance``; see `costs`."""
    seen = SeenBatches()
    writer = topology(spark, tolerance, records=records, workers=workers)
    size = batch_records(records) * RECORD_BYTES
    with watched_run(writer, seen, batch_bytes=size, options=store) as ended:
        return costs(seen, ended.query.snapshots())


def interval_contests(spark: SparkSession, records: int) -> dict[str, Contenders]:
    """For each store: none beside both kinds of snapshots for every interval, and beside what has no interval.

    Those that are compared run right after each other.
    """
    contests: dict[str, Contenders] = {}
    for store, options in STORES.items():
        run = partial(one_run, spark, records=records, store=options)
        none: dict[str, Measure] = {NONE: partial(one_run, spark, af.Nothing(), records=records)}
        for interval in INTERVALS:
            contests[name_of(store, interval)] = none | {
                ASYNCHRONOUS: partial(run, af.BarrierSnapshot(interval=interval)),
                SYNCHRONOUS: partial(run, af.BarrierSnapshot(interval=interval, asynchronous=False)),
            }
        contests[store] = none | {
            APPROXIMATE: partial(run, af.Approximate(theta=THETA)),
            MINIBATCH: partial(run, af.MiniBatch()),
        }
    return contests


def name_of(store: str, interval: float) -> str:
    """A contest's name.

    >>> name_of("local disk", 0.5)
    'local disk, 0.5 s'
    """
    return f"{store}, {interval:g} s"
