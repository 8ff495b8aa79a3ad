"""The worker's side: claims, positions, waiting, and what is told when a call fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.receiver import Receiver
from afspark.push.wire.push_errors import ReceiverUnreachable, Superseded, UnknownLane
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.flightclient import Client, Stream

Start = Callable[..., Receiver]


@pytest.fixture
def receiver(receive: Start) -> Receiver:
    return receive(store=MemoryStore(), allow_items=100)


@pytest.fixture
def stream(receiver: Receiver) -> Stream:
    return Client(receiver.address).stream()


def worker(receiver: Receiver, incarnation: int = 1, fence: int = 1, lane: int = 0) -> LaneClient:
    return LaneClient(receiver.address, lane, incarnation=incarnation, fence=fence, access=receiver.worker_access)


def test_attaching_answers_what_is_known(receiver: Receiver, stream: Stream) -> None:
    stream.send(0, 5)
    stream.ack_up_to(5)
    assert worker(receiver).attach().positions == {}
    known = {stream.client.id: 3, "gone/00": 9, "/00000001": 1}
    assert worker(receiver).attach({stream.client.id: 3, "gone/00": 9}).positions == known
    assert worker(receiver).attach({stream.client.id: 1}).positions == known
    (entry,) = worker(receiver).pull({})
    assert (entry.start, entry.end) == (3, 5)


def test_any_number_of_sessions_may_come_and_go_within_a_batch(receiver: Receiver, stream: Stream) -> None:
    """None of them leaves the positions before the batch is in a record; until then every message names them all."""
    stream.send(0, 5)
    stream.ack_up_to(5)
    gone = {f"sensor-{number}/{number:032x}": 1 for number in range(70_000)}
    client = worker(receiver)
    assert gone.items() <= client.attach(gone).positions.items()
    (entry,) = client.pull(gone, after=gone)
    assert (entry.producer, entry.end) == (stream.client.id, 5)
    taken = gone | {entry.producer: entry.end}
    client.stop_logging(taken)
    assert set(client.confirm(taken).over) <= set(gone)
    assert receiver.stats()["pending_items"] == 0


def test_a_pull_waits_for_what_is_to_come(receiver: Receiver, stream: Stream) -> None:
    client = worker(receiver)
    began = time.monotonic()
    here = {stream.client.id: 0}
    assert client.pull(here, wait=0.3) == []
    assert time.monotonic() - began >= 0.3
    threading.Timer(0.2, stream.send, (0, 5)).start()
    assert len(client.pull(here, wait=20)) == 1
    assert time.monotonic() - began < 10


def test_what_is_in_hand_is_not_handed_out_again_but_stays_pending(receiver: Receiver, stream: Stream) -> None:
    for start in (0, 5):
        stream.send(start, 5)
        stream.ack_up_to(start + 5)
    client = worker(receiver)
    first, second = client.pull({})
    assert [entry.start for entry in client.pull({}, after={first.producer: first.end})] == [5]
    assert client.pull({first.producer: 5}, after={second.producer: second.end}) == []
    assert receiver.stats()["pending_items"] == 5


def test_a_pull_is_cut_by_bytes(receiver: Receiver, stream: Stream) -> None:
    for start in (0, 5, 10):
        stream.send(start, 5)
        stream.ack_up_to(start + 5)
    client = worker(receiver)
    assert len(client.pull({}, max_bytes=1)) == 1
    assert len(client.pull({}, max_bytes=5000)) == 2


def test_stop_logging_tells_what_is_logged(receiver: Receiver, stream: Stream) -> None:
    stream.send(0, 5)
    stream.ack_up_to(5)
    client = worker(receiver)
    assert client.stop_logging({stream.client.id: 5}) is False
    stream.send(5, 100)
    stream.ack_up_to(105)
    assert client.stop_logging({stream.client.id: 5}) is False
    assert client.stop_logging({stream.client.id: 105}) is True
    client.confirm({stream.client.id: 105})
    assert receiver.stats()["pending_items"] == 0


def test_a_newer_worker_takes_the_lane(receiver: Receiver) -> None:
    old, new = worker(receiver, 1, 7), worker(receiver, 2, 0)
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            old.pull({}, wait=60)
        except Superseded as error:
            caught.append(error)

    old.attach()
    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    new.attach()
    thread.join(10)
    assert len(caught) == 1, "a pull under way is told"
    for use in (lambda: old.pull({}), lambda: old.stop_logging({}), lambda: old.confirm({}), old.attach):
        with pytest.raises(Superseded) as error:
            use()
        assert error.value.lane == 0
    new.pull({})


def test_a_lane_that_is_elsewhere_is_named(receiver: Receiver) -> None:
    with pytest.raises(UnknownLane) as caught:
        worker(receiver, lane=4).attach()
    assert (caught.value.lane, caught.value.lanes) == (4, [0])


def test_a_receiver_that_is_gone_is_named(receiver: Receiver) -> None:
    client = worker(receiver)
    client.attach()
    receiver.stop()
    for use in (client.attach, lambda: client.pull({})):
        with pytest.raises(ReceiverUnreachable) as caught:
            use()
        assert caught.value.address == receiver.address
