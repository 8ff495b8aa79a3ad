"""Pushed items under barrier snapshots on Spark: lost workers apply the same items again, and nothing is off by one."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import afspark as af
from afspark.push.producer.producer import Producer
from tests.spark.own_driver import own_driver
from tests.spark.streams import Place
from tests.spark.test_push import SCHEMA, batch, expected, totals, wait_until, writer

cloudpickle.register_pickle_by_value(sys.modules["tests.spark.test_push"])  # type: ignore[no-untyped-call]

#: Barriers come when a loss would have so many seconds to replay.
SECONDS = 3

DRIVER = f"""
import sys
from pathlib import Path
import afspark as af
from tests.spark.conftest import make_session
from tests.spark.streams import Place
from tests.spark.test_push import writer

root = Path(sys.argv[1])
place = Place(root)
spark = make_session(root / "spark")
tolerance = af.BarrierSnapshot(batches=1000)
query = writer(spark, place, tolerance, keyed=True).option("maxReplaySeconds", {SECONDS}).start()
(root / "unfinished").write_text(query.receivers[0])
(root / "unfinished").rename(root / "address")
query.awaitTermination()
"""


def drained(query: af.Query) -> None:
    """Everything that was sent is covered, and acknowledged."""
    deadline = time.monotonic() + 60
    while any(lane["pending_items"] for one in query.receiverStats().values() for lane in one["lanes"].values()):
        query.raise_failure()
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize(
    "keyed", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["off the lanes", "behind a relay"]
)
def test_workers_without_their_folders_apply_the_same_items_again(
    spark: SparkSession, place: Place, keyed: bool
) -> None:
    tolerance = af.BarrierSnapshot(batches=1000, log_items=keyed)
    query = writer(spark, place, tolerance, keyed=keyed).option("maxReplaySeconds", SECONDS).start()
    with Producer(query.receivers[0], "sensor", SCHEMA) as producer:
        for start in range(0, 20_000, 1_000):
            producer.send(batch(start))
            if start in (8_000, 15_000):
                wait_until(query, start - 2_000)
                for folder in Path(place.segments).glob("*/*"):
                    shutil.rmtree(folder)
    drained(query)
    query.stop()
    assert totals(query, "count") == expected(20_000)
    assert query.bounds("count") == {"counts": 0.0}
    assert query.item_losses() == []
    assert max(entry["replayed_batches"] or 0 for entry in query.ledger() if entry["operator"] == "count") > 0


@pytest.mark.thorough
def test_a_killed_driver_with_all_state_gone_is_exact_after_its_producer_has_sent_again(
    spark: SparkSession, place: Place
) -> None:
    address = place.root / "address"
    with own_driver(DRIVER, place) as driver:
        driver.wait_for(address)
        producer = Producer(address.read_text(), "sensor", SCHEMA, give_up=120)
        for start in range(0, 20_000, 1_000):
            producer.send(batch(start))
            # The first batch is covered; the kill finds some more of them committed.
            if start == 4_000:
                driver.wait_for(place.checkpoint / "commits", "[0-9]*")
            if 4_000 <= start <= 8_000:
                time.sleep(0.4)
            if start == 8_000:
                driver.kill()
                shutil.rmtree(place.segments)
                port = int(address.read_text().rpartition(":")[2])
                started = writer(spark, place, af.BarrierSnapshot(batches=1000), keyed=True, port=port)
                query = started.option("maxReplaySeconds", SECONDS).start()
        producer.close()
    drained(query)
    query.stop()
    assert totals(query, "count") == expected(20_000)
    assert query.bounds("count") == {"counts": 0.0}
    assert query.item_losses() == []
    assert max(entry["replayed_batches"] or 0 for entry in query.ledger() if entry["operator"] == "count") > 0
