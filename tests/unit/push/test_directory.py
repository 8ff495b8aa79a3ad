"""Producers find their receiver through a directory, and find it again when it has moved."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.push.producer.link import Dial, fetch_schema
from afspark.push.producer.producer import Producer
from afspark.push.receiver.directory import Directory
from afspark.push.receiver.receiver import Receiver, ReceiverConfig

SCHEMA = pa.schema([("item", pa.int64())])


def receiver(*lanes: int) -> Receiver:
    made = Receiver(ReceiverConfig(schema=SCHEMA, lanes=lanes))
    made.start()
    return made


@pytest.fixture
def places() -> list[str]:
    return []


@pytest.fixture
def directory(places: list[str]) -> Iterator[Directory]:
    made = Directory(SCHEMA, lambda: places, host="127.0.0.1", port=0)
    yield made
    made.shutdown()


def batch(start: int, rows: int = 100) -> pa.RecordBatch:
    return pa.record_batch({"item": list(range(start, start + rows))}, schema=SCHEMA)


def test_producers_are_spread_over_receivers_and_know_the_schema(directory: Directory, places: list[str]) -> None:
    receivers = [receiver(0, 2), receiver(1, 3)]
    places += [one.address for one in receivers]
    assert fetch_schema(Dial(directory.address)) == SCHEMA
    for number in range(8):
        with Producer(directory.address, f"p{number}", SCHEMA) as producer:
            producer.send(batch(0))
    accepted = [one.stats()["accepted"] for one in receivers]
    assert sum(accepted) == 800 and min(accepted) > 0
    for one in receivers:
        one.stop()


def test_a_receiver_that_moved_is_found_again(directory: Directory, places: list[str]) -> None:
    first = receiver(0)
    places.append(first.address)
    with Producer(directory.address, "p", SCHEMA) as producer:
        producer.send(batch(0))
        producer.flush(30)
        first.stop()
        second = receiver(0)
        places[:] = [second.address]
        producer.send(batch(100))
        producer.flush(30)
        assert second.stats()["accepted"] == 100
    second.stop()


def test_a_producer_waits_while_no_receiver_is_up(directory: Directory, places: list[str]) -> None:
    late = receiver(0)
    Timer(0.3, places.append, [late.address]).start()
    with Producer(directory.address, "p", SCHEMA) as producer:
        producer.send(batch(0))
        assert places, "it was accepted before anybody was there"
        producer.flush(30)
    assert late.stats()["accepted"] == 100
    late.stop()


def test_other_hosts_need_token_and_certificate() -> None:
    with pytest.raises(UsageError, match="without protection"):
        Directory(SCHEMA, list, host="0.0.0.0", port=0)
