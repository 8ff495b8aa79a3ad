"""Runs of the topology under different tolerances, while nothing fails."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.interleave import NONE, Measure
from afspark.bench.kept_rounds import Contenders
from afspark.bench.rig import STORES
from afspark.bench.seen_batches import SeenBatches, costs
from afspark.bench.topology import BATCH_RECORDS, CHUNK_RECORDS, RECORD_BYTES, THETA, topology
from afspark.bench.watched_run import watched_run

INTERVALS = (0.2, 0.5, 1.0, 3.0, 10.0)
ASYNCHRONOUS, SYNCHRONOUS = "asynchronous", "synchronous"
APPROXIMATE, MINIBATCH = "approximate", "mini-batch"
#: the contest of what is backed up with every batch
EVERY_BATCH = "every batch"
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
    """For every interval both kinds of snapshots on all stores beside a run of none; so is what has no interval.

    Those that are compared run soon after each other.
    """
    none: dict[str, Measure] = {NONE: partial(one_run, spark, af.Nothing(), records=records)}

    def beside_none(tolerances: Mapping[str, af.Tolerance]) -> Contenders:
        others = {
            contender(kind, store): partial(one_run, spark, tolerance, records=records, store=options)
            for store, options in STORES.items()
            for kind, tolerance in tolerances.items()
        }
        return none | others

    by_interval = {
        contest_of(interval): beside_none(
            {
                ASYNCHRONOUS: af.BarrierSnapshot(interval=interval),
                SYNCHRONOUS: af.BarrierSnapshot(interval=interval, asynchronous=False),
            }
        )
        for interval in INTERVALS
    }
    every = beside_none({APPROXIMATE: af.Approximate(theta=THETA), MINIBATCH: af.MiniBatch()})
    return by_interval | {EVERY_BATCH: every}


def contest_of(interval: float) -> str:
    """The contest of an interval.

    >>> contest_of(0.5)
    '0.5 s'
    """
    return f"{interval:g} s"


def contender(kind: str, store: str) -> str:
    """A kind of backups on a store.

    >>> contender("asynchronous", "local disk")
    'asynchronous, local disk'
    """
    return f"{kind}, {store}"
