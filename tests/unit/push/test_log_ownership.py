"""An old receiver that does not know it was replaced."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pyarrow as pa
from pyarrow import flight

from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.receiver import Receiver
from afspark.push.wire.messages import Ack
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.flightclient import Client

Start = Callable[..., Receiver]


def test_a_receiver_that_was_replaced_loses_no_more_than_one_that_died(receive: Start) -> None:
    store = MemoryStore()
    old = receive(store=store, allow_items=10)
    client = Client(old.address, "a")
    stream = client.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    new = receive(store=store, allow_items=10)
    stream.send(5, 5)
    stream.ack_up_to(10)  # within the allowance, it need not ask anybody
    stream.send(10, 5)
    with contextlib.suppress(flight.FlightError, pa.ArrowException, OSError):
        while (answer := stream.reader.read()) is not None:
            assert Ack.from_bytes(answer).end == 10
    deadline = time.monotonic() + 10
    while store.list("lane-00000"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    again = client.again(new.address)
    assert again.hello().received == {0: 10}
    stream = again.stream()
    stream.send(10, 5)
    stream.ack_up_to(15)
    entries = LaneClient(new.address, 0, incarnation=1, fence=1, access=new.worker_access).pull({})
    assert [(entry.start, entry.end, entry.mark) for entry in entries] == [(10, 10, True), (10, 15, False)]
