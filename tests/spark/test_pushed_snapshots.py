"""Pushed items under barrier snapshots on Spark: lost workers apply the same items again, and nothing is off by one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import afspark as af
from afspark.push.producer.producer import Producer
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


def test_a_killed_driver_with_all_state_gone_is_exact_after_its_producer_has_sent_again(
    spark: SparkSession, place: Place
) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(place.root)],
        env={**os.environ},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=(place.root / "stderr").open("wb"),
    )
    address = place.root / "address"
    try:
        deadline = time.monotonic() + 120
        while not address.exists():
            assert driver.poll() is None and time.monotonic() < deadline, (place.root / "stderr").read_text()
            time.sleep(0.1)
        producer = Producer(address.read_text(), "sensor", SCHEMA, give_up=120)
        commits = place.checkpoint / "commits"
        for start in range(0, 20_000, 1_000):
            producer.send(batch(start))
            # The first batch is covered; the kill finds some more of them committed.
            while start == 4_000 and not list(commits.glob("[0-9]*")):
                assert driver.poll() is None and time.monotonic() < deadline, (place.root / "stderr").read_text()
                time.sleep(0.1)
            if 4_000 <= start <= 8_000:
                time.sleep(0.4)
            if start == 8_000:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                shutil.rmtree(place.segments)
                port = int(address.read_text().rpartition(":")[2])
                started = writer(spark, place, af.BarrierSnapshot(batches=1000), keyed=True, port=port)
                query = started.option("maxReplaySeconds", SECONDS).start()
        producer.close()
    finally:
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
    drained(query)
    query.stop()
    assert totals(query, "count") == expected(20_000)
    assert query.bounds("count") == {"counts": 0.0}
    assert query.item_losses() == []
    assert max(entry["replayed_batches"] or 0 for entry in query.ledger() if entry["operator"] == "count") > 0
