"""A receiver over real Flight calls: acknowledgements, resends, restarts, limits, endings."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.wire.messages import Allowance, PunctuationMark
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.flightclient import SCHEMA, Client, rows

Start = Callable[..., Receiver]


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def lane_stats(receiver: Receiver, lane: int = 0) -> dict[str, object]:
    return receiver.stats()["lanes"][str(lane)]


class GatedStore(MemoryStore):
    """A store whose puts to the log wait until they are let through."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.begun = threading.Semaphore(0)

    def put(self, name: str, data: bytes) -> None:
        if name.startswith("lane-"):
            self.begun.release()
            assert self.gate.wait(20)
        super().put(name, data)


def log_of(store: MemoryStore) -> list[str]:
    return store.list("lane-00000")


def test_a_batch_is_acknowledged_before_anybody_reads_it(receive: Start) -> None:
    receiver = receive()
    client = Client(receiver.address)
    assert client.hello().lanes == (0,)
    stream = client.stream()
    stream.send(0, 5)
    assert stream.ack().end == 5
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    (entry,) = worker.pull({})
    assert (entry.producer, entry.start, entry.end, entry.logged) == (client.id, 0, 5, False)
    assert entry.batch is not None and entry.batch.equals(rows(0, 5))
    worker.confirm({client.id: 5})
    assert worker.pull({}) == []
    assert receiver.stats()["pending_bytes"] == 0


def test_beyond_the_allowance_no_acknowledgement_comes_before_the_log_is_written(receive: Start) -> None:
    store = GatedStore()
    receiver = receive(store=store, allow_items=10)
    first, second = Client(receiver.address, "a"), Client(receiver.address, "b")
    one, two = first.stream(), second.stream()
    one.send(0, 10)
    assert one.ack().end == 10
    one.send(10, 1)
    assert store.begun.acquire(timeout=10)
    # During the write: another producer waits, a worker does not.
    two.send(0, 20)
    two.send(20, 20)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    eventually(lambda: len(worker.pull({})) == 4)
    time.sleep(0.1)
    assert receiver.stats()["acknowledged"] == 10
    assert log_of(store) == []
    store.gate.set()
    one.ack_up_to(11)
    two.ack_up_to(40)
    eventually(lambda: len(log_of(store)) == 2)  # one for both waiting batches
    assert all(entry.logged for entry in worker.pull({}))
    assert lane_stats(receiver)["exposed_items"] == 0


def test_an_allowance_is_lowered_by_a_pull(receive: Start) -> None:
    store = MemoryStore()
    receiver = receive(store=store, allow_items=100)
    stream = Client(receiver.address).stream()
    stream.send(0, 50)
    stream.ack_up_to(50)
    assert log_of(store) == []
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    worker.pull({}, allow=Allowance(49))
    eventually(lambda: len(log_of(store)) == 1)


def test_old_items_are_logged_although_nothing_comes(receive: Start) -> None:
    store = MemoryStore()
    receiver = receive(store=store, allow_items=math.inf, allow_seconds=0.3)
    stream = Client(receiver.address).stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    assert log_of(store) == []
    eventually(lambda: len(log_of(store)) == 1)


def test_a_store_that_fails_delays_acknowledgements_and_loses_nothing(receive: Start) -> None:
    class Failing(MemoryStore):
        failures = 2

        def put(self, name: str, data: bytes) -> None:
            if self.failures and name.startswith("lane-"):
                self.failures -= 1
                raise OSError("disk full")
            super().put(name, data)

    receiver = receive(store=Failing(), allow_items=0)
    stream = Client(receiver.address).stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    stats = lane_stats(receiver)
    assert stats["write_failures"] == 2 and "disk full" in str(stats["last_failure"])


def test_acknowledgements_can_wait_for_the_worker(receive: Start) -> None:
    receiver = receive(ack_when_confirmed=True, allow_items=0, store=None)
    client = Client(receiver.address)
    stream = client.stream()
    stream.send(0, 5)
    stream.send(5, 5)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    eventually(lambda: len(worker.pull({}, wait=1)) == 2)
    assert receiver.stats()["acknowledged"] == 0
    worker.pull({client.id: 5})
    assert stream.ack().end == 5
    worker.confirm({client.id: 10})
    assert stream.ack().end == 10


def test_the_end_of_a_stream_waits_for_its_acknowledgements(receive: Start) -> None:
    receiver = receive(ack_when_confirmed=True)
    client = Client(receiver.address)
    stream = client.stream()
    stream.send(0, 5)
    stream.end()
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    eventually(lambda: len(worker.pull({}, wait=1)) == 1)
    time.sleep(0.2)
    worker.confirm({client.id: 5})
    assert stream.ack().end == 5
    assert stream.reader.read() is None


def test_resent_batches_are_dropped_and_acknowledged_again(receive: Start) -> None:
    receiver = receive()
    first = Client(receiver.address)
    stream = first.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    first.close()
    again = first.again(receiver.address)
    assert again.hello({0: 3}).received == {0: 5}
    stream = again.stream()
    assert stream.ack().end == 5, "told at once what was acknowledged"
    stream.send(0, 5)
    assert stream.ack().end == 5
    stream.send(5, 2)
    stream.ack_up_to(7)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    assert [(entry.start, entry.end) for entry in worker.pull({})] == [(0, 5), (5, 7)]
    assert receiver.stats()["duplicates"] == 5


def test_what_waits_for_the_log_is_acknowledged_to_the_connection_there_is_then(receive: Start) -> None:
    store = GatedStore()
    receiver = receive(store=store, allow_items=0)
    first = Client(receiver.address)
    stream = first.stream()
    stream.send(0, 5)
    assert store.begun.acquire(timeout=10)
    first.close()
    again = first.again(receiver.address)
    assert again.hello().received == {0: 5}
    stream = again.stream()
    stream.send(0, 5)  # sent again: a duplicate that is not durable yet
    eventually(lambda: receiver.stats()["duplicates"] == 5)
    assert receiver.stats()["acknowledged"] == 0
    store.gate.set()
    stream.ack_up_to(5)


def test_a_restart_brings_back_what_was_logged_and_shows_what_was_not(receive: Start) -> None:
    store = MemoryStore()
    first = receive(store=store, allow_items=10)
    client = Client(first.address)
    stream = client.stream()
    stream.send(0, 15)
    stream.ack_up_to(15)
    stream.punctuate(15, PunctuationMark(time=1.5))
    stream.ack_up_to(16)
    stream.send(16, 7)
    stream.ack_up_to(23)
    first.stop(save=False)

    second = receive(store=store, allow_items=10)
    again = client.again(second.address)
    assert again.hello().received == {0: 23}
    stream = again.stream()
    stream.send(23, 2)
    stream.ack_up_to(25)
    worker = LaneClient(second.address, 0, incarnation=1, fence=2, access=second.worker_access)
    logged, punctuation, mark, fresh = worker.pull({})
    assert logged.logged and logged.batch is not None and logged.batch.equals(rows(0, 15))
    assert (punctuation.punctuation, punctuation.start, punctuation.end) == (PunctuationMark(time=1.5), 15, 16)
    assert mark.mark and (mark.start, mark.end) == (23, 23), "16 to 22 were acknowledged and are lost"
    assert (fresh.start, fresh.logged) == (23, False)


def test_an_orderly_stop_loses_nothing(receive: Start) -> None:
    store = MemoryStore()
    first = receive(store=store, allow_items=10)
    stream = Client(first.address).stream()
    stream.send(0, 7)
    stream.ack_up_to(7)
    first.stop()
    second = receive(store=store, allow_items=10)
    (entry,) = LaneClient(second.address, 0, incarnation=1, fence=1, access=second.worker_access).pull({})
    assert entry.logged and entry.end == 7


def test_the_log_is_truncated_behind_the_worker(receive: Start) -> None:
    store = MemoryStore()
    receiver = receive(store=store, allow_items=0)
    client = Client(receiver.address)
    stream = client.stream()
    for start in range(0, 50, 10):
        stream.send(start, 10)
        stream.ack_up_to(start + 10)
    assert len(log_of(store)) == 5
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    worker.confirm({client.id: 30})
    eventually(lambda: len(log_of(store)) == 2)
    assert len(worker.pull({})) == 2


def test_a_session_ends_durably(receive: Start) -> None:
    store = MemoryStore()
    first = receive(store=store, allow_items=100)
    client = Client(first.address)
    stream = client.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    client.bye({0: 5})
    first.stop(save=False)
    second = receive(store=store, allow_items=100)
    (entry,) = LaneClient(second.address, 0, incarnation=1, fence=1, access=second.worker_access).pull({})
    assert entry.mark and entry.start == 5 and entry.logged


def test_a_plain_client_needs_no_numbers(receive: Start) -> None:
    receiver = receive(lanes=(0, 3))
    client = Client(receiver.address)
    stream = client.stream(command=b"")
    for start in (0, 10, 20, 30):
        stream.writer.write_batch(rows(start, 10))
    stream.close()
    found = []
    for lane in (0, 3):
        worker = LaneClient(receiver.address, lane, incarnation=1, fence=1, access=receiver.worker_access)
        entries = worker.pull({})
        assert [entry.start for entry in entries] == [0, 10, 20] and entries[-1].mark
        found += [number for entry in entries if entry.batch for number in entry.batch.column(0).to_pylist()]
        worker.confirm({entries[-1].producer: 20})
        assert worker.pull({}) == []
        assert lane_stats(receiver, lane)["sessions"] == []
    assert sorted(found) == list(range(40))


def test_memory_is_bounded_and_nothing_is_dropped(receive: Start) -> None:
    receiver = receive(limits=Limits(buffer_bytes=100_000, message_bytes=50_000))
    client = Client(receiver.address)
    total = 300

    def produce() -> None:
        stream = client.stream()
        for start in range(0, total * 100, 100):
            stream.send(start, 100)
        stream.ack_up_to(total * 100)
        stream.close()

    thread = threading.Thread(target=produce)
    thread.start()
    eventually(lambda: lane_stats(receiver)["blocked_producers"] == 1)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    position, numbers = 0, []
    while position < total * 100:
        assert receiver.stats()["pending_bytes"] <= 100_000
        for entry in worker.pull({client.id: position}, max_bytes=20_000, wait=5):
            assert entry.start == position and entry.batch is not None
            numbers += entry.batch.column(0).to_pylist()
            position = entry.end
    thread.join()
    assert numbers == list(range(total * 100))
    assert receiver.stats()["blocked_seconds"] > 0


def test_a_blocked_producer_that_goes_away_is_noticed(receive: Start) -> None:
    receiver = receive(limits=Limits(buffer_bytes=10_000, message_bytes=10_000))
    stream = Client(receiver.address, timeout=1.0).stream()
    stream.send(0, 50)
    stream.send(50, 300)
    eventually(lambda: lane_stats(receiver)["blocked_producers"] == 1)
    # It gives its call up after a second.
    eventually(lambda: lane_stats(receiver)["blocked_producers"] == 0)
    assert receiver.stats()["connected"] == 0


@pytest.mark.parametrize("state", ["idle", "blocked", "pulling", "waiting for acknowledgements"])
def test_stopping_ends_every_call(receive: Start, state: str) -> None:
    late = state == "waiting for acknowledgements"
    receiver = receive(limits=Limits(buffer_bytes=10_000, message_bytes=10_000), ack_when_confirmed=late)
    client = Client(receiver.address)
    stream = client.stream()
    stream.send(0, 50)
    eventually(lambda: receiver.stats()["accepted"] == 50)
    failures: list[BaseException] = []
    if state == "blocked":
        stream.send(50, 300)
        eventually(lambda: lane_stats(receiver)["blocked_producers"] == 1)
    elif late:
        stream.end()

    def pull() -> None:
        try:
            LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access).pull(
                {client.id: 50}, wait=60
            )
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=pull)
    if state == "pulling":
        thread.start()
        eventually(lambda: receiver.stats()["released"] == 50)
    eventually(lambda: receiver.stats()["accepted"] == 50)
    began = time.monotonic()
    receiver.stop()
    assert time.monotonic() - began < 5
    if state == "pulling":
        thread.join(10)
        assert len(failures) == 1
    receiver.stop()  # harmless


def test_a_process_with_a_connected_producer_ends(receive: Start) -> None:
    code = """
import sys, pyarrow as pa
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
receiver = Receiver(ReceiverConfig(schema=pa.schema([("n", pa.int64()), ("text", pa.string())]), lanes=(0,)))
print(receiver.start(), flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert process.stdout is not None and process.stdin is not None
    stream = Client(process.stdout.readline().strip()).stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


def test_fast_producers_are_slowed_down(receive: Start) -> None:
    receiver = receive(limits=Limits(rows_per_second=1000))
    stream = Client(receiver.address).stream()
    began = time.monotonic()
    for start in range(0, 1500, 250):
        stream.send(start, 250)
    stream.ack_up_to(1500)
    assert time.monotonic() - began > 0.4


def test_gamma_is_told(receive: Start) -> None:
    assert Client(receive(unacked=100.0).address).hello().unacked == 100.0


def test_many_producers_on_one_lane_keep_their_order_and_the_promise(receive: Start) -> None:
    store = MemoryStore()
    receiver = receive(store=store, allow_items=50, lanes=(0,))
    clients = [Client(receiver.address, f"p{number}") for number in range(4)]
    done = threading.Event()

    def produce(client: Client) -> None:
        stream = client.stream()
        for start in range(0, 600, 20):
            stream.send(start, 20)
        stream.ack_up_to(600)
        stream.close()

    threads = [threading.Thread(target=produce, args=(client,)) for client in clients]
    worst = 0

    def watch() -> None:
        nonlocal worst
        while not done.is_set():
            worst = max(worst, lane_stats(receiver)["exposed_items"])  # type: ignore[call-overload]

    watcher = threading.Thread(target=watch)
    for thread in [watcher, *threads]:
        thread.start()
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    positions: dict[str, int] = {}
    while sum(positions.values()) < 4 * 600:
        for entry in worker.pull(positions, max_bytes=5000, wait=1):
            assert entry.start == positions.get(entry.producer, 0)
            positions[entry.producer] = entry.end
    worker.confirm(positions)
    for thread in threads:
        thread.join()
    done.set()
    watcher.join()
    assert worst <= 50
    assert receiver.stats()["pending_items"] == 0


def test_idle_sessions_make_room_for_new_producers(receive: Start) -> None:
    receiver = receive(limits=Limits(producers=2))
    busy = Client(receiver.address, "busy").stream()
    busy.send(0, 1)
    busy.ack_up_to(1)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    for number in range(5):
        visitor = Client(receiver.address, f"visitor {number}")
        visitor.hello()
        worker.confirm({visitor.id: 0})
    assert receiver.stats()["producers"] == 2


@pytest.mark.parametrize(
    "options",
    [
        {"lanes": ()},
        {"lanes": (1, 1)},
        {"lanes": (-1,)},
        {"allow_items": 10},
        {"allow_seconds": 1.0},
        {"unacked": -1},
        {"host": "0.0.0.0"},
        {"schema": pa.schema([("d", pa.dictionary(pa.int8(), pa.string()))])},
        {"schema": pa.schema([("d", pa.list_(pa.struct([("x", pa.dictionary(pa.int8(), pa.string()))])))])},
    ],
    ids=str,
)
def test_a_receiver_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ReceiverConfig(**{"schema": SCHEMA, "lanes": (0,)} | options)  # type: ignore[arg-type]


def test_a_taken_port_is_named(receive: Start) -> None:
    port = receive().port
    with pytest.raises(UsageError) as caught:
        Receiver(ReceiverConfig(schema=SCHEMA, lanes=(0,), port=port)).start()
    assert caught.value.port == port


def test_a_configuration_can_be_sent_to_executors() -> None:
    config = ReceiverConfig(schema=SCHEMA, lanes=(0, 1), limits=Limits(producers=3))
    again = pickle.loads(pickle.dumps(config))
    assert again.lanes == (0, 1) and again.limits.producers == 3 and again.schema.equals(SCHEMA)
    assert isinstance(again.schema, pa.Schema)
