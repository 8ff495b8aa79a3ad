"""The producer against a receiver that does as it is told: γ, resending, what was lost, errors."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.push.producer.link import Dial, fetch_schema
from afspark.push.producer.producer import Producer, ProducerClosed
from afspark.push.producer.unacked import NotAcknowledged
from afspark.push.wire.push_errors import LimitExceeded, NotAllowed, ReceiverUnreachable, SchemaMismatch
from tests.unit.push.fake_receiver import SCHEMA, FakeReceiver

ROOT = Path(__file__).parents[3]


def numbers(start: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, stop), pa.int64())], schema=SCHEMA)


def soon(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def receiver() -> Iterator[Callable[..., FakeReceiver]]:
    made: list[FakeReceiver] = []

    def make(*args: Any, **options: Any) -> FakeReceiver:
        made.append(FakeReceiver(*args, **options))
        return made[-1]

    yield make
    for server in made:
        server.open.set()
        server.shutdown()


def test_rows_arrive_in_turn_numbered_per_lane(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(lanes=(3, 5))
    with Producer(server.address, "p", SCHEMA, batch_rows=10) as producer:
        producer.send(pa.Table.from_batches([numbers(0, 25), numbers(25, 40)]))
        producer.punctuate(time=7.5)
        producer.send(numbers(40, 41))
        producer.end()
        producer.flush(10)
        counters = producer.counters
    assert [row["n"] for row in server.rows] == list(range(41))
    assert [(tag.lane, tag.start) for tag in server.tags] == [
        (3, 0), (5, 0), (3, 10), (5, 10), (3, 15), (3, 20), (5, 20), (5, 21), (3, 21), (5, 22),
    ]  # fmt: skip
    assert [tag.punctuation.time for tag in server.tags[5:7] if tag.punctuation] == [7.5, 7.5]
    assert [tag.punctuation.end for tag in server.tags[-2:] if tag.punctuation] == [True, True]
    assert counters.taken == counters.sent == counters.acknowledged == 41
    assert counters.resent == counters.reconnects == 0
    assert counters.latency_p50 is not None and counters.latency_p99 is not None
    assert 0 < counters.latency_p50 <= counters.latency_p99 < 10
    assert server.byes[0].acked == {3: 22, 5: 23}


@pytest.mark.parametrize(("theirs", "own", "limit"), [(10, None, 10), (math.inf, 7, 7), (10, 100, 10), (1, None, 1)])
def test_no_more_than_gamma_items_are_unacknowledged(
    receiver: Callable[..., FakeReceiver], theirs: float, own: int | None, limit: int
) -> None:
    server = receiver(unacked=theirs)
    server.open.clear()
    producer = Producer(server.address, "p", SCHEMA, unacked=own)
    sender = threading.Thread(target=lambda: producer.send(numbers(0, 100)), daemon=True)
    sender.start()
    assert soon(lambda: producer.unacknowledged > limit // 2)
    time.sleep(0.3)
    slice_rows = max(1, limit // 2)
    assert producer.unacknowledged == server.held == limit // slice_rows * slice_rows
    assert sender.is_alive()
    server.open.set()
    sender.join(10)
    producer.close(10)
    assert server.most_held <= limit and max(server.sizes) <= limit
    assert [row["n"] for row in server.rows] == list(range(100))
    assert producer.counters.blocked_seconds >= 0.2


def test_without_allowance_each_batch_is_waited_for(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(unacked=0)
    with Producer(server.address, "p", SCHEMA) as producer:
        for start in range(0, 50, 10):
            producer.send(numbers(start, start + 10))
            assert producer.unacknowledged == 0
            assert producer.counters.acknowledged == start + 10
    assert server.most_held == 10 and server.sizes == [10] * 5


def test_the_receiver_may_tighten_gamma_while_it_runs(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(unacked=1000)
    with Producer(server.address, "p", SCHEMA) as producer:
        producer.send(numbers(0, 1000))
        producer.flush(10)
        assert max(server.sizes) == 500
        server.smaller = 10
        producer.send(numbers(1000, 1001))
        producer.flush(10)
        server.sizes.clear()
        producer.send(numbers(1001, 1101))
    assert max(server.sizes) == 5


def test_memory_is_bounded_where_gamma_is_not(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    server.open.clear()
    producer = Producer(server.address, "p", SCHEMA, batch_rows=100, unacked_bytes=10_000)
    sender = threading.Thread(target=lambda: producer.send(numbers(0, 10_000)), daemon=True)
    sender.start()
    time.sleep(0.5)
    assert sender.is_alive() and 100 <= producer.unacknowledged <= 1250
    server.open.set()
    sender.join(10)
    producer.close(10)
    assert len(server.rows) == 10_000


def test_messages_stay_below_what_the_receiver_takes(receiver: Callable[..., FakeReceiver]) -> None:
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    server = receiver(schema=schema, max_bytes=20_000)
    batch = pa.record_batch([pa.array(range(100)), pa.array(["x" * 1000] * 100)], schema=schema)
    with Producer(server.address, "p", schema) as producer:
        producer.send(batch)
        producer.flush(10)
        assert max(server.sizes) <= 20
        with pytest.raises(LimitExceeded) as caught:
            producer.send(pa.record_batch([pa.array([1]), pa.array(["x" * 30_000])], schema=schema))
    assert caught.value.allowed == 20_000
    assert [row["n"] for row in server.rows] == list(range(100))


def test_abort_tells_exactly_what_was_not_acknowledged(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(lanes=(0, 1))
    producer = Producer(server.address, "p", SCHEMA, batch_rows=10)
    producer.send(numbers(0, 30))
    producer.flush(10)
    server.open.clear()
    producer.send(numbers(30, 75))
    producer.punctuate(time=1)
    began = time.monotonic()
    lost = producer.abort()
    assert time.monotonic() - began < 2
    # Lane 0 had two slices of the first three, lane 1 one; the next go to lane 1 first.
    assert lost.lanes == {0: (20, 41), 1: (10, 36)}
    assert lost.rows == ((30, 75),) and lost.items == 45 and lost.punctuations == 2
    assert producer.lost == lost
    assert str(lost) == "45 items and 2 punctuations (lane 0: 20-40, lane 1: 10-35)"
    with pytest.raises(ProducerClosed):
        producer.send(numbers(0, 1))


def test_abort_frees_a_sender_that_is_blocked(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(unacked=4)
    server.open.clear()
    producer = Producer(server.address, "p", SCHEMA)
    caught: list[BaseException] = []

    def send() -> None:
        try:
            producer.send(numbers(0, 100))
        except ProducerClosed as error:
            caught.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert soon(lambda: producer.unacknowledged == 4)
    assert producer.abort().rows == ((0, 4),)
    sender.join(5)
    assert len(caught) == 1 and producer.counters.taken == 4


def test_closing_in_vain_tells_what_is_missing(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    server.open.clear()
    producer = Producer(server.address, "p", SCHEMA)
    producer.send(numbers(0, 5))
    with pytest.raises(NotAcknowledged) as flushed:
        producer.flush(0.1)
    assert flushed.value.items == 5
    with pytest.raises(NotAcknowledged) as closed:
        producer.close(0.1)
    assert closed.value.lost.lanes == {0: (0, 5)}
    producer.close()


def test_it_waits_for_a_receiver_that_is_not_up_yet(receiver: Callable[..., FakeReceiver]) -> None:
    port = free_port()
    producer = Producer(f"127.0.0.1:{port}", "p", SCHEMA, give_up=30)
    sender = threading.Thread(target=lambda: producer.send(numbers(0, 5)))
    sender.start()
    time.sleep(0.4)
    assert sender.is_alive()
    server = receiver(port)
    sender.join(20)
    producer.close(10)
    assert len(server.rows) == 5


def test_it_gives_up_and_says_how_much_is_unacknowledged(tmp_path: Path) -> None:
    server = Process(0, tmp_path / "log")
    producer = Producer(f"127.0.0.1:{server.port}", "p", SCHEMA, unacked=100, give_up=0.5)
    producer.send(numbers(0, 5))
    producer.flush(10)
    server.kill()
    with pytest.raises(ReceiverUnreachable) as caught:
        producer.send(numbers(5, 1000))
    assert caught.value.items == 100 and caught.value.lost == producer.lost
    assert producer.lost.rows == ((5, 105),)
    with pytest.raises(ReceiverUnreachable):
        producer.close()


def test_nobody_listens() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", "p", SCHEMA, give_up=0.3)
    with pytest.raises(ReceiverUnreachable) as caught:
        producer.send(numbers(0, 5))
    assert caught.value.items == 0
    assert "connection refused" in str(caught.value)


def test_a_refused_token_is_not_tried_again(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    producer = Producer(server.address, "refused", SCHEMA)
    with pytest.raises(NotAllowed):
        producer.send(numbers(0, 5))


def test_a_wrong_schema_is_said_by_the_receiver(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    other = pa.schema([("m", pa.string())])
    producer = Producer(server.address, "p", other)

    def send() -> None:
        producer.send(pa.record_batch([pa.array(["a"])], schema=other))
        producer.close(10)

    # The receiver refuses the stream, perhaps before its first item was taken.
    with pytest.raises(SchemaMismatch) as caught:
        send()
    assert caught.value.items in {0, 1}


def test_a_stream_that_was_refused_before_anything_was_written_is_not_tried_again(
    receiver: Callable[..., FakeReceiver],
) -> None:
    server = receiver()
    producer = Producer(server.address, "p", pa.schema([("m", pa.string())]))
    with pytest.raises(SchemaMismatch):
        producer.close(10)
    assert len(server.hellos) == 1


def test_a_batch_of_another_schema_is_refused_at_once(receiver: Callable[..., FakeReceiver]) -> None:
    with Producer(receiver().address, "p", SCHEMA) as producer:
        with pytest.raises(SchemaMismatch):
            producer.send(pa.record_batch([pa.array(["a"])], names=["n"]))
        producer.send(numbers(0, 1).replace_schema_metadata({"made": "by pandas"}))


def test_the_schema_can_be_asked_for(receiver: Callable[..., FakeReceiver]) -> None:
    assert fetch_schema(Dial(receiver().address)) == SCHEMA


@pytest.mark.parametrize("address", ["host", "host:0", "host:port", "http://host:80", ":80", ""])
def test_an_address_needs_host_and_port(address: str) -> None:
    with pytest.raises(UsageError):
        Producer(address, "p", SCHEMA)


def test_nothing_can_be_sent_after_the_end(receiver: Callable[..., FakeReceiver]) -> None:
    with Producer(receiver().address, "p", SCHEMA) as producer:
        producer.end()
        with pytest.raises(UsageError):
            producer.send(numbers(0, 1))


def test_after_an_error_what_was_sent_is_still_delivered(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()

    def send_and_fail() -> None:
        with Producer(server.address, "p", SCHEMA) as producer:
            producer.send(numbers(0, 5))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        send_and_fail()
    assert len(server.rows) == 5 and len(server.byes) == 1


def test_importing_it_is_cheap() -> None:
    code = "import sys, afspark.push.producer.producer; print({'pyspark', 'numba', 'pandas'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


class Process:
    """The fake receiver as a process that can be killed."""

    def __init__(self, port: int, log: Path) -> None:
        command = [sys.executable, "-m", "tests.unit.push.fake_receiver", str(port), str(log)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        environment = os.environ | {"PYTHONPATH": path}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def test_a_killed_receiver_gets_the_unacknowledged_rest_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    server = Process(0, log)
    port = server.port
    producer = Producer(f"127.0.0.1:{port}", "p", SCHEMA, unacked=2000, give_up=60)
    sender = threading.Thread(
        target=lambda: [producer.send(numbers(start, start + 97)) for start in range(0, 97_000, 97)]
    )
    sender.start()
    try:
        for acknowledged in (10_000, 40_000):
            assert soon(lambda least=acknowledged: producer.counters.acknowledged > least, 30)  # type: ignore[misc]
            server.kill()
            server = Process(port, log)
        sender.join(60)
        producer.close(30)
    finally:
        server.kill()
    assert producer.counters.reconnects == 2 and producer.counters.acknowledged == 97_000
    seen: dict[int, int] = {}
    numbered: dict[int, dict[int, int]] = {0: {}, 1: {}}
    for line in log.read_text().splitlines():
        lane, start, values = json.loads(line)
        for place, value in enumerate(values):
            seen[value] = seen.get(value, 0) + 1
            assert numbered[lane].setdefault(start + place, value) == value, "a number means the same row for ever"
    assert sorted(seen) == list(range(97_000))
    # The log is written before the acknowledgement: what was in between came twice, at most γ for each kill.
    assert sum(times - 1 for times in seen.values()) <= 2 * 2000
    assert sum(times - 1 for times in seen.values()) <= producer.counters.resent <= 2 * 2000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
