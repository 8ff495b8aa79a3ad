"""System failures in every phase of a batch, with real kills: exact, or inside the bound."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.sources import Packets
from tests.spark.streams import (
    BATCH_BYTES,
    Place,
    affected,
    at,
    counts,
    packet_truth,
    run,
    words,
    worst,
    write_text,
)

THETA = 160.0


EVERY_PHASE = FaultPlan(
    frozenset(InjectedFailure(batch, phase) for batch, phase in enumerate(FaultPhase, start=1)), "every"
)


@pytest.mark.thorough
def test_minibatch_is_exact_after_failures_in_every_phase(spark: SparkSession, place: Place) -> None:
    """A pipeline of three operators goes through the same in tests/spark/test_pipelines.py; in
    tests/unit/runtime/test_engine_failures.py each phase fails alone.
    """
    truth = write_text(place.input, 4 * (len(FaultPhase) + 2))
    query = run(words(spark, place, af.MiniBatch(), keyed=True, faults=EVERY_PHASE))
    assert worst(truth, counts(query)) == 0
    assert query.bounds() == {"counts": 0.0}
    assert {entry["worker"] for entry in query.ledger()} == {0, 1}
    # A failure after the record is found by the batch that follows.
    assert len({entry["batch"] for entry in query.ledger()}) >= len(FaultPhase) - 1
    assert all(entry["covered"] for entry in query.ledger())


def test_approximate_stays_inside_its_bound_after_failures_in_every_phase(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 4 * (len(FaultPhase) + 2))
    # Losses before the next durable record are one, so every batch waits for its own here.
    query = run(words(spark, place, af.Approximate(THETA), faults=EVERY_PHASE).option("maxReplaySeconds", 0))
    realised = query.bounds()["counts"]
    counted = [entry for entry in query.ledger() if entry["counted"]]
    assert realised == pytest.approx(math.fsum(entry["theta"]["counts"] for entry in counted))
    # Two workers: the first failure takes 1/4 of the limit from each at most, the next 1/8 …
    assert {entry["theta"]["counts"] for entry in counted} >= {THETA / 2 ** (k + 2) for k in range(len(FaultPhase) - 1)}
    assert 0 < worst(truth, counts(query)) <= realised <= THETA


@pytest.mark.thorough
def test_ten_system_failures_stay_inside_the_bound(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 52)
    plan = FaultPlan.seeded(10, batches=13, seed=4)
    query = run(words(spark, place, af.Approximate(THETA), faults=plan))
    assert query.totals.batches == 13
    # Two failures without a batch between them count once.
    assert max(entry["failures"] for entry in query.ledger() if entry["counted"]) >= 5
    assert 0 < worst(truth, counts(query)) <= query.bounds()["counts"] < THETA


def test_nothing_starts_empty_after_a_loss_and_the_ledger_says_so(spark: SparkSession, place: Place) -> None:
    truth = write_text(place.input, 16)
    query = run(words(spark, place, af.Nothing(), faults=affected(FaultPhase.BETWEEN, 3)))
    got = counts(query)
    assert worst(truth, got) > 0
    assert all(got[word] <= truth[word] for word in got)
    assert [(entry["worker"], entry["batch"]) for entry in query.ledger()] == [(0, 3), (1, 3)]
    assert all(entry["restored_cells"] == 0 for entry in query.ledger())
    assert query.bounds() == {"counts": math.inf}
    assert not place.objects()


LIMIT = 400_000
PACKETS = Packets(rows=8 << 15, seed=3, pairs=2_000)


def heavy(spark: SparkSession, place: Place, tolerance: af.Tolerance, faults: FaultPlan) -> af.Query:
    operator = af.HeavyHitters(keys=("src", "dst"), weight="bytes", threshold=LIMIT)
    stateful = af.read_stream(spark).source(PACKETS).apply(operator, workers=2, tolerance=tolerance)
    return run(at(stateful.writeStream, place, (1 << 15) * 24).inject(faults))


@pytest.mark.parametrize(
    ("tolerance", "plan"),
    [
        pytest.param(af.Approximate(40_000.0), FaultPlan.seeded(10, batches=8, seed=1), marks=pytest.mark.thorough),
        (af.Approximate(40_000.0), affected(FaultPhase.COMMITTED, 7)),
        pytest.param(af.MiniBatch(), FaultPlan.seeded(3, batches=8, seed=2), marks=pytest.mark.thorough),
    ],
    ids=["ten failures", "one after the last batch", "minibatch"],
)
def test_no_heavy_hitter_is_missed(spark: SparkSession, place: Place, tolerance: af.Tolerance, plan: FaultPlan) -> None:
    truth = {pair: size for pair, size in packet_truth(PACKETS).items() if size >= LIMIT}
    query = heavy(spark, place, tolerance, plan)
    rows = {(row.src, row.dst): row for row in query.results().collect()}
    assert truth and truth.keys() <= rows.keys()
    assert all(rows[pair].estimate >= size for pair, size in truth.items())
    bound = query.bounds()["sketch"]
    assert {row.bound for row in rows.values()} == {bound}
    assert (bound > 0) == bool(plan.failures and tolerance.promise())


def test_heavy_hitters_under_nothing_survive_a_loss(spark: SparkSession, place: Place) -> None:
    query = heavy(spark, place, af.Nothing(), affected(FaultPhase.BETWEEN, 6))
    truth = packet_truth(PACKETS)
    rows = query.results().collect()
    # What came after the loss is at least in there, and nothing is added for what nobody promised.
    assert all(LIMIT <= row.estimate <= 2 * truth[row.src, row.dst] for row in rows)
    assert query.bounds()["sketch"] == math.inf
    assert query.lastProgress is not None
    assert query.lastProgress["state"]["cells"] < 2 * 4 * 8_000 + 1_000


def test_a_heavy_key_that_never_returns_after_the_failure_is_kept(spark: SparkSession, place: Place) -> None:
    """Its last occurrence is in a batch before the failure, and its weight only just reaches the threshold."""
    place.input.mkdir()
    for number in range(6):
        keys = ["early"] * 50 if number < 2 else [f"k{number}-{i}" for i in range(50)]
        table = pa.table({"key": keys, "weight": [100 if number < 2 else 10] * 50})
        pq.write_table(table, place.input / f"{number}.parquet")
    operator = af.HeavyHitters(keys=("key",), weight="weight", threshold=10_000)
    stateful = (
        af.read_stream(spark).parquet(str(place.input)).apply(operator, workers=2, tolerance=af.Approximate(4_000.0))
    )
    query = run(at(stateful.writeStream, place, 1).inject(affected(FaultPhase.BETWEEN, 3, 5)))
    assert query.totals.batches == 6
    rows = {row.key: row for row in query.results().collect()}
    assert rows["early"].estimate >= 10_000
    assert set(rows) == {"early"}


def test_batches_are_small_enough_for_these_tests_to_mean_something(spark: SparkSession, place: Place) -> None:
    write_text(place.input, 8)
    query = run(words(spark, place, af.Approximate(THETA)))
    assert query.totals.batches >= 2 and query.totals.bytes <= query.totals.batches * BATCH_BYTES
    assert query.totals.backups["count"] > 0
    assert query.bounds() == {"counts": 0.0}
