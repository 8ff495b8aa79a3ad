"""Another number of workers through the public interface: a program is changed and started again."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

import afspark as af
from afspark.errors import CheckpointError
from afspark.push.producer.producer import Producer
from tests.spark.streams import Place, counts, words, write_text
from tests.spark.test_push import SCHEMA, batch, expected, totals, wait_until, writer


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "local"])
def test_workers_change_and_the_files_are_gone(spark: SparkSession, place: Place, keyed: bool) -> None:
    truth = write_text(place.input, 6)
    query = words(spark, place, af.Approximate(theta=1e6), workers=2, keyed=keyed).start()
    query.awaitTermination()
    query.stop()
    shutil.rmtree(place.input)
    truth += write_text(place.input, 2, first=6)
    for workers in (1, 2):
        query = words(spark, place, af.Approximate(theta=1e6), workers=workers, keyed=keyed).start()
        query.awaitTermination()
        assert counts(query) == truth and query.bounds() == {"counts": 0.0}
        assert not any(entry["counted"] for entry in query.ledger())
        assert len(query.tolerance()) == workers
        query.stop()
        truth += write_text(place.input, 2, first=8 + 2 * workers)
    with pytest.raises(CheckpointError, match="Nothing"):
        words(spark, place, af.Nothing(), workers=1, keyed=keyed).start()


@pytest.mark.thorough
def test_pushed_items_by_key_go_on_with_other_workers(spark: SparkSession, place: Place) -> None:
    """The lanes stay, and what waits on them when the query stops is there for the others."""

    def started(workers: int) -> af.Query:
        return writer(spark, place, af.Approximate(0, items=100, unacked=10_000), keyed=True, workers=workers).start()

    query = started(2)
    with Producer(query.receivers[0], "sensor", SCHEMA) as producer:
        for start in range(0, 20_000, 1_000):
            producer.send(batch(start))
        producer.flush(60)
        wait_until(query, 1)
    query.stop()
    taken, sent = query.totals.items, 20_000
    for former, workers in ((2, 1), (1, 2)):
        query = _changed(started, former, workers)
        with Producer(query.receivers[0], f"sensor-{workers}", SCHEMA) as producer:
            producer.send(batch(sent))
            producer.flush(60)
            sent += 1_000
            wait_until(query, sent - taken)
        assert len(query.tolerance()) == workers
        query.stop()
        taken += query.totals.items
    assert totals(query, "count") == expected(sent)
    assert query.item_losses() == [] and query.bounds("count") == {"counts": 0.0}


def _changed(started: Callable[[int], af.Query], former: int, workers: int) -> af.Query:
    """The query with other workers. Where Spark had planned a batch when it was stopped it starts as it was first, as
    the error says.
    """
    for _ in range(10):
        try:
            return started(workers)
        except CheckpointError:
            query = started(former)
            query.processAllAvailable()
            query.stop()
    raise AssertionError("it is refused again and again")
