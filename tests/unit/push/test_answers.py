"""What clients are told when a call fails, and by which addresses they may call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyarrow import flight

from afspark.errors import UsageError
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.producer.producer import Producer
from afspark.push.receiver.calls import ReceiverCalls
from afspark.push.receiver.directory import Directory
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver import Receiver
from afspark.push.wire.messages import HELLO
from afspark.push.wire.push_errors import WireError, from_flight
from tests.unit.push.flightclient import SCHEMA, Client, rows

Start = Callable[..., Receiver]


@pytest.fixture
def broken(receive: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[flight.FlightClient]]:
    """Clients of a receiver and of a directory with a mistake inside."""

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake in /a/path/of/this/host.py")

    receiver = receive()
    monkeypatch.setattr(ReceiverCalls, "act", fail)
    directory = Directory(rows(0, 0).schema, fail, host="127.0.0.1", port=0)  # type: ignore[arg-type]
    clients = [flight.connect(address) for address in (receiver.address, directory.address)]
    yield clients
    for client in clients:
        client.close()
    directory.shutdown()


def everything(client: flight.FlightClient) -> Iterator[Callable[[], object]]:
    """Every call of Flight's that a client can make, most of them wrong."""
    descriptor, schema = flight.FlightDescriptor.for_command(b"x"), rows(0, 0).schema
    yield lambda: list(client.list_flights())
    yield lambda: client.get_flight_info(descriptor)
    yield lambda: client.get_schema(descriptor)
    yield client.list_actions
    yield lambda: list(client.do_action(flight.Action(HELLO, b"{}")))
    yield lambda: client.do_get(flight.Ticket(b"x")).read_all()
    for write in (lambda: client.do_put(descriptor, schema)[0], lambda: client.do_exchange(descriptor)[0]):
        yield lambda write=write: write().close()


def test_no_traceback_goes_to_clients(broken: list[flight.FlightClient], caplog: pytest.LogCaptureFixture) -> None:
    told = []
    for client in broken:
        for call in everything(client):
            try:
                call()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                told.append(str(error))
    assert len(told) > 8
    for text in told:
        assert "Traceback" not in text and ".py" not in text, text
    assert "/a/path/of/this/host.py" in caplog.text, "the log has it"


def test_an_ipv6_address_is_taken_everywhere(receive: Start) -> None:
    receiver = receive(host="::1")
    directory = Directory(rows(0, 0).schema, lambda: [receiver.address], host="[::1]", port=0)
    for address in (receiver.address, f"[::1]:{receiver.port}", directory.address):
        with Producer(address, "p", rows(0, 0).schema) as producer:
            producer.send(rows(0, 5))
        assert producer.counters.acknowledged == 5
    with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access) as worker:
        assert len(worker.pull({})) == 6, "items and an end of each"
    directory.shutdown()
    with pytest.raises(UsageError, match="brackets"):
        Producer("::1:7007", "p", rows(0, 0).schema)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("count", [0, 5, 10_000_000])
def test_a_compressed_batch_ends_its_stream_and_harms_nobody(receive: Start, codec: str, count: int) -> None:
    """Also one that is small on the wire and larger than allowed once it is unpacked."""
    receiver = receive(limits=Limits(message_bytes=1 << 20))
    honest = Client(receiver.address, "honest").stream()
    honest.send(0, 5)
    honest.ack_up_to(5)
    batch = pa.record_batch([pa.nulls(count, pa.int64()).fill_null(0), pa.nulls(count, pa.string())], schema=SCHEMA)
    options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression=codec))
    with flight.connect(receiver.address) as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_command(b""), SCHEMA, options)
        with pytest.raises((flight.FlightError, pa.ArrowException, OSError)) as caught:
            write_and_close(writer, batch)
    told = from_flight(caught.value, "")
    assert isinstance(told, WireError) and told.what == "compression"
    honest.send(5, 5)
    honest.ack_up_to(10)
    assert receiver.stats()["accepted"] == 10


def write_and_close(writer: flight.FlightStreamWriter, batch: pa.RecordBatch) -> None:
    writer.write(batch)
    writer.close()
