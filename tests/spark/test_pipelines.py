"""Pipelines of several operators on Spark: windows, punctuation, feedback, fan-out, and what failures do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.errors import CheckpointError
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from tests.spark.stages import LENGTH, Count, Gate, Run, numbers, parse, write_events
from tests.spark.streams import Place, at, run, worst

FILES = 24
THETA = 300.0
EVERY_PHASE = FaultPlan(
    frozenset(InjectedFailure(batch, phase) for batch, phase in enumerate(FaultPhase, start=1)), "every"
)


@pytest.mark.thorough
@pytest.mark.parametrize("faults", [FaultPlan(), EVERY_PHASE], ids=["quiet", "every phase"])
def test_exact_pipelines_stay_exact(spark: SparkSession, place: Place, faults: FaultPlan) -> None:
    truth = write_events(place, FILES)
    attempt = Run(place, af.MiniBatch())
    query = run(attempt.writer(spark, faults))
    query.end()
    assert attempt.windows == truth
    assert all(len(batches) == 1 for batches in attempt.delivered.values()), "a window came out twice"
    assert set(attempt.bounds.values()) == {0.0}
    windows = len(attempt.delivered)
    assert numbers(query, "total") == {"total": FILES * 800, "windows": windows, "ended": 1}
    # The gate has two workers; what windows feed back when the stream ends reaches it in the batch after.
    assert numbers(query, "gate") == {"passed": FILES * 800, "fed": 2 * windows}
    assert bool(query.ledger()) == bool(faults.failures)


@pytest.mark.thorough
def test_approximate_pipelines_stay_inside_their_bounds(spark: SparkSession, place: Place) -> None:
    truth = write_events(place, FILES)
    attempt = Run(place, af.Approximate(theta=THETA))
    query = run(attempt.writer(spark, EVERY_PHASE))
    query.end()
    assert {window for window, _ in attempt.windows} == {window for window, _ in truth}
    for window, bound in attempt.bounds.items():
        mine = {key: count for (at_, key), count in truth.items() if at_ == window}
        got = {key: count for (at_, key), count in attempt.windows.items() if at_ == window}
        assert worst(mine, got) <= bound <= THETA
    assert max(attempt.bounds.values()) > 0
    assert numbers(query, "total")["windows"] == len(attempt.bounds), "an end of a window was lost"
    assert min(attempt.bounds.values()) == 0, "windows opened after the last failure start without a debt"


def test_a_stopped_pipeline_goes_on_where_it_was(spark: SparkSession, place: Place) -> None:
    truth = write_events(place, FILES // 2)
    first = Run(place, af.MiniBatch())
    run(first.writer(spark))
    truth |= write_events(place, FILES // 2, first=FILES // 2)
    second = Run(place, af.MiniBatch())
    query = run(second.writer(spark))
    query.end()
    assert not set(first.delivered) & set(second.delivered), "a window came out before and after the stop"
    assert first.windows | second.windows == truth
    assert numbers(query, "gate")["fed"] == 2 * len(first.delivered | second.delivered)
    assert query.ledger() == []
    write_events(place, 1, first=FILES)
    with pytest.raises(CheckpointError, match="has been ended"):
        run(Run(place, af.MiniBatch()).writer(spark))


def test_late_items_are_dropped_and_counted(spark: SparkSession, place: Place) -> None:
    place.input.mkdir()
    (place.input / "1.txt").write_text("5 a\n61 a\n")
    (place.input / "2.txt").write_text("70 a\n")
    (place.input / "3.txt").write_text("6 a\n65 a\n" + "130 a\n")
    seen: Counter[int] = Counter()
    stream = af.read_stream(spark).text(str(place.input)).map(parse)
    counts = stream.apply(Count(), name="count", workers=1, window=af.Hopping(LENGTH, column="time", delay=30))
    writer = counts.writeStream.outputMode("append").foreachBatch(
        lambda frame, batch: seen.update({int(row["window_start"]): row["count"] for row in frame.collect()})
    )
    query = run(at(writer, place, 12))
    query.end()
    assert query.totals.late == 1, "second 6 came after second 70 had been seen, with a delay of 30"
    assert seen == {0: 1, 60: 3, 120: 1}


class Tagged(af.Operator):
    """Counts items by where they come from."""

    key = ("key",)

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"seen": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["seen"].add(pa.array([self.context.input] * items.num_rows), 1)


class Halves(af.Operator):
    """Stateless: sends even seconds to one operator and odd ones to another."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        even = pa.array(items.column("time").to_numpy() % 2 == 0)
        self.context.outbox.send(items.filter(even), to="left")
        self.context.outbox.send(items.filter(pa.array(~even.to_numpy(zero_copy_only=False))), to="right")


class Pass(af.Operator):
    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items


def test_items_fan_out_and_meet_again(spark: SparkSession, place: Place) -> None:
    truth = write_events(place, 8)
    halves = af.read_stream(spark).text(str(place.input)).map(parse).apply(Halves(), name="halves")
    left = halves.apply(Pass(), name="left", workers=1)
    right = halves.apply(Pass(), name="right", workers=2)
    joined = left.union(right).apply(Tagged(), name="joined", workers=2, keyed=False)
    query = run(at(joined.writeStream, place, 20_000))
    seen = {row["key"].decode(): row["value"] for row in query.results("joined").collect()}
    assert sum(seen.values()) == sum(truth.values())
    times = np.concatenate([np.sort(np.random.default_rng(n).integers(0, 10, 800)) for n in range(8)])
    assert seen == {"left": int((times % 2 == 0).sum()), "right": int((times % 2 == 1).sum())}


def test_sliding_windows_hold_the_last_panes(spark: SparkSession, place: Place) -> None:
    truth = write_events(place, 12)
    got: dict[tuple[int, str], int] = {}
    stream = af.read_stream(spark).text(str(place.input)).map(parse)
    counts = stream.apply(
        Count(), name="count", window=af.Sliding(3 * LENGTH, LENGTH, column="time"), tolerance=af.Approximate(THETA)
    )
    writer = counts.writeStream.outputMode("append").foreachBatch(
        lambda frame, batch: got.update(
            {(int(row["window_end"]) // LENGTH - 1, row["key"]): row["count"] for row in frame.collect()}
        )
    )
    query = run(at(writer, place, 4 * 6_400))
    query.end()
    expected: Counter[tuple[int, str]] = Counter()
    for (pane, key), count in truth.items():
        for later in range(3):
            expected[pane + later, key] += count
    assert got == dict(expected)


class Fading(Gate):
    def states(self) -> Mapping[str, af.StateSpec]:
        return {"passed": af.Numeric(value="float64"), "fed": af.Numeric(value="float64")}


def test_decaying_states_fade(spark: SparkSession, place: Place) -> None:
    write_events(place, 12)
    stream = af.read_stream(spark).text(str(place.input)).map(parse)
    fading = stream.apply(Fading(), name="fading", window=af.Decaying(0.5, 10, column="time"))
    query = run(at(fading.writeStream, place, 4 * 6_400))
    assert numbers(query, "fading")["passed"] == pytest.approx(sum(800 * 0.5 ** (11 - tick) for tick in range(12)))
