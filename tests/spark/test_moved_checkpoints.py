"""A query that was stopped goes on from its checkpoint wherever that is by then, and a copy goes on beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import afspark as af
from tests.spark.streams import Place, counts, run, words, write_text

#: All but `Nothing` that need no second host, each so that it would back up nothing, or little, by itself.
POLICIES = [
    af.Approximate(theta=1e9),
    pytest.param(af.MiniBatch(), marks=pytest.mark.thorough),
    pytest.param(af.BarrierSnapshot(batches=1000), marks=pytest.mark.thorough),
    pytest.param(af.UpstreamBackup(), marks=pytest.mark.thorough),
]
every_policy = pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: type(one).__name__)


def go_on(spark: SparkSession, place: Place, checkpoint: Path, tolerance: af.Tolerance) -> af.Query:
    """Reads what is new in the place's input, with the checkpoint that is elsewhere."""
    return run(words(spark, place, tolerance).option("checkpointLocation", checkpoint))


def assert_nothing_was_lost(query: af.Query) -> None:
    assert not any(entry["counted"] for entry in query.ledger())
    assert query.bounds() == {"counts": 0.0}


@every_policy
def test_a_moved_checkpoint_goes_on_without_loss(spark: SparkSession, place: Place, tolerance: af.Tolerance) -> None:
    truth = write_text(place.input, 6)
    run(words(spark, place, tolerance))
    moved = shutil.move(place.checkpoint, place.root / "elsewhere" / "moved")
    place.lose_segments()
    truth += write_text(place.input, 4, first=6)
    query = go_on(spark, place, Path(moved), tolerance)
    assert counts(query) == truth
    assert_nothing_was_lost(query)


@every_policy
def test_a_copy_goes_on_beside_the_original(spark: SparkSession, place: Place, tolerance: af.Tolerance) -> None:
    """On the same hosts, in turns, on other input: neither finds what the other one has made."""
    truth = write_text(place.input, 4)
    run(words(spark, place, tolerance))
    copy = Place(place.root / "copy")
    copy.root.mkdir()
    shutil.copytree(place.checkpoint, copy.checkpoint)
    original = truth + write_text(place.input, 4, first=4)
    assert counts(go_on(spark, place, place.checkpoint, tolerance)) == original
    copied = go_on(spark, place, copy.checkpoint, tolerance)
    assert counts(copied) == original
    assert_nothing_was_lost(copied)
    more = write_text(place.input, 4, first=8)
    for checkpoint in (copy.checkpoint, place.checkpoint):
        query = go_on(spark, place, checkpoint, tolerance)
        assert counts(query) == original + more
        assert_nothing_was_lost(query)


def test_a_stop_that_takes_too_long_ends_all_the_same(
    spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """On a store that takes a record in no time and the whole state in a minute."""
    truth = write_text(place.input, 4)

    def slow(writer: af.StreamWriter) -> af.StreamWriter:
        return writer.option("storeBytesPerSecond", 20_000).option("flushSeconds", 0.2)

    tolerance = af.Approximate(theta=1e9)
    run(slow(words(spark, place, tolerance)))
    assert "lost with it" in caplog.text
    place.lose_segments()
    query = run(words(spark, place, tolerance))
    assert [entry["counted"] for entry in query.ledger()] == [True, True]
    assert counts(query) != truth and query.bounds()["counts"] > 0


@pytest.mark.parametrize("stops", [af.Query.stop, lambda query: query.stop(flush=False)], ids=["flush", "no flush"])
def test_a_query_that_is_stopped_in_the_midst(
    spark: SparkSession, place: Place, stops: Callable[[af.Query], None]
) -> None:
    truth = write_text(place.input, 12)
    tolerance = af.Approximate(theta=1e9)
    query = words(spark, place, tolerance).trigger(processingTime="50 milliseconds").start()
    while not query.lastProgress:
        query.awaitTermination(1)
    stops(query)
    assert place.lose_segments() == 2
    truth += write_text(place.input, 2, first=12)
    again = run(words(spark, place, tolerance))
    flushed = stops is af.Query.stop
    assert [entry["counted"] for entry in again.ledger()] == [not flushed, not flushed]
    assert (counts(again) == truth) is flushed
