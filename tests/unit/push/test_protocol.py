"""The client that the documentation of the protocol shows, against the real receiver."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.receiver import Receiver
from afspark.push.receiver.session_listing import KEPT_AWAY
from afspark.push.wire.messages import VERSION
from afspark.push.wire.push_errors import ReceiverStopped, from_flight
from tests.property.store.faulty_store import MemoryStore
from tests.unit.push.flightclient import SCHEMA, rows
from tests.unit.push.flightclient import Client as OwnClient

PAGE = Path(__file__).parents[3] / "docs" / "push-protocol.md"
Start = Callable[..., Receiver]


@pytest.fixture(scope="module")
def client_class() -> Any:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), namespace)
    return namespace["Client"]


class Worker:
    """Takes what is there and keeps its position, as a worker does over several receivers."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.missing: list[tuple[int, int]] = []
        self.positions: dict[str, int] = {}

    def take(self, receiver: Receiver) -> None:
        with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access) as worker:
            worker.attach(self.positions)
            for entry in worker.pull(self.positions):
                at = self.positions.get(entry.producer, 0)
                if entry.start > at:
                    self.missing.append((at, entry.start))
                if entry.batch is not None and entry.end > at:
                    self.numbers += entry.batch.slice(max(0, at - entry.start)).column(0).to_pylist()
                self.positions[entry.producer] = max(at, entry.end)
            worker.confirm(self.positions)


def test_the_client_of_the_page_is_counted_once_although_the_receiver_dies(receive: Start, client_class: Any) -> None:
    store, worker = MemoryStore(), Worker()
    first = receive(store=store, allow_items=20)
    client = client_class(first.address, "page", SCHEMA)
    client.connect()
    for start in range(0, 30, 10):
        client.send(0, rows(start, 10))
    client.wait()
    worker.take(first)
    # Acknowledged and in no log: what a death may take.
    client.send(0, rows(30, 10))
    client.wait()
    # Under way, and perhaps there.
    client.send(0, rows(40, 10))
    first.stop(save=False)
    second = receive(store=store, allow_items=20, port=first.port)
    client.connect()
    client.send(0, rows(50, 10))
    client.wait()
    client.close()
    worker.take(second)
    assert worker.numbers == [*range(30), *range(40, 60)]
    assert worker.missing == [(30, 40)], "what was acknowledged and is gone is known exactly"


def test_the_page_says_what_is_so() -> None:
    page = PAGE.read_text()
    assert f"version {VERSION}" in page and f'"version": {VERSION}' in page
    assert f"`max_producers` + {KEPT_AWAY:,}" in page


@pytest.mark.parametrize("lanes", [(0,), (0, 1, 2)])
def test_a_stream_without_numbers_that_ends_well_has_acknowledged_everything(
    receive: Start, lanes: tuple[int, ...]
) -> None:
    receiver = receive(store=MemoryStore(), allow_items=15, lanes=lanes)
    with flight.connect(receiver.address) as client:
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(b""), SCHEMA)
        for start in range(0, 200, 10):
            writer.write(rows(start, 10))
        writer.done_writing()
        ends: dict[int, int] = {}
        while (answer := reader.read()) is not None:
            ack = json.loads(answer.to_pybytes())
            ends[ack["lane"]] = ack["end"]
        writer.close()
    assert sum(ends.values()) == 200


def test_a_stream_whose_acknowledgements_went_elsewhere_does_not_end_well(receive: Start) -> None:
    receiver = receive(ack_when_confirmed=True)
    client = OwnClient(receiver.address)
    stream = client.stream()
    stream.send(0, 5)
    with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access) as worker:
        assert [entry.end for entry in worker.pull({client.id: 0}, wait=20)] == [5]
        other = client.again(receiver.address).stream()
        stream.end()
        assert stream.reader.read() is None, "nothing more comes"
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)) as caught:
            stream.close()
        assert isinstance(from_flight(caught.value, ""), ReceiverStopped)
        worker.confirm({client.id: 5})
        other.ack_up_to(5)
