"""Heavy hitters of pushed packets under failures that take receivers as well: items are lost, not only state.

Every part of the stream ends with small messages. Those may wait without backup, as many as l allows, and go down
with the receiver; large ones exceed l and are logged.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

import afspark as af
from afspark.bench.accuracy.hitters import HeavyHitterStudy
from afspark.bench.accuracy.prefixes import Prefixes
from afspark.bench.accuracy.trial import BATCHES, Outcome, failures_before, injected_failures
from afspark.protocol.fault_plan import FaultPlan
from afspark.push.producer.producer import Producer
from afspark.sources.chunks import NumberedChunk

SMALL_ROWS, SMALL_MESSAGES = 100, 8
TICK_SECONDS = 0.25
PATIENCE_SECONDS = 120.0


def pushed_trial(spark: SparkSession, study: HeavyHitterStudy, tolerance: af.Approximate, seed: int) -> Outcome:
    """Pushes the stream of the study, a part for each batch, and judges what is there in the end."""
    plan = injected_failures(seed)
    checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
    try:
        packets = af.read_stream(spark).pushed(study.source.schema(), tick_seconds=TICK_SECONDS)
        query = (
            packets.apply(study.operator_anew(), workers=2, tolerance=tolerance)
            .writeStream.option("checkpointLocation", checkpoint)
            .inject(FaultPlan(frozenset(plan), name=f"seed-{seed}"))
            .start()
        )
        try:
            _push(query, study)
            query.stop()
            results = query.results().toArrow()
            verdict = study.verdict(query, results, tolerance)
            lost = float(sum(loss["items"] for loss in query.item_losses()))
            recoveries = [one["recovery_seconds"] for one in query.ledger() if one["recovery_seconds"] is not None]
        finally:
            if query.isActive:
                query.stop()
            query.release()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    score = {"batch": BATCHES - 1.0, "failures": float(failures_before(BATCHES - 1, plan))}
    score |= study.score(results, BATCHES - 1) | {"lost_items": lost}
    verdict |= {"lost_items": lost, "held": float(verdict["held"] and lost <= tolerance.items)}
    return Outcome(seed, [score], verdict, recoveries)


def _push(query: af.Query, study: HeavyHitterStudy) -> None:
    schema = study.source.schema()
    with Producer(query.receivers[0], "bench", schema, give_up=PATIENCE_SECONDS) as producer:
        for part, chunks in enumerate(Prefixes(study.source, study.batch_bytes).batches):
            for message in _messages(study, chunks):
                producer.send(message)
            _wait(partial(_has_run, query, part), query)
        producer.flush(PATIENCE_SECONDS)
    _wait(lambda: not any(one["pending_items"] for one in query.receiverStats().values()), query)


def _messages(study: HeavyHitterStudy, chunks: Sequence[NumberedChunk]) -> Iterator[pa.RecordBatch]:
    *before, last = (batch for chunk in chunks for batch in study.source.read(chunk))
    yield from before
    small = SMALL_ROWS * SMALL_MESSAGES
    yield last.slice(0, last.num_rows - small)
    for start in range(last.num_rows - small, last.num_rows, SMALL_ROWS):
        yield last.slice(start, SMALL_ROWS)


def _has_run(query: af.Query, batch: int) -> bool:
    return query.totals.batches > batch


def _wait(until: Callable[[], bool], query: af.Query) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not until():
        query.raise_failure()
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query does not go on: {query.totals}")
        time.sleep(0.01)
