"""Whatever one producer sends, it alone gets an error, and the others go on."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from afspark.errors import AfsparkError
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.limits import Limits
from afspark.push.receiver.receiver import Receiver
from afspark.push.wire.messages import BYE, HELLO, BatchTag, Bye, Hello, PunctuationMark, PutHeader
from afspark.push.wire.push_errors import (
    LimitExceeded,
    NotAllowed,
    OutOfOrder,
    ReceiverUnreachable,
    SchemaMismatch,
    UnknownLane,
    UnknownSession,
    Unproven,
    UnsoundBatch,
    WireError,
    from_flight,
)
from afspark.push.wire.security import Access, Security
from tests.unit.push.flightclient import Client, Stream, rows

Start = Callable[..., Receiver]


@pytest.fixture
def receiver(receive: Start) -> Iterator[Receiver]:
    """A receiver with an honest producer, who must not notice anything."""
    receiver = receive(limits=Limits(message_bytes=100_000, producers=3))
    honest = Client(receiver.address, "honest").stream()
    honest.send(0, 10)
    honest.ack_up_to(10)
    yield receiver
    honest.send(10, 10)
    honest.ack_up_to(20)
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    mine = [entry for entry in worker.pull({}) if entry.producer.startswith("honest")]
    assert [entry.start for entry in mine] == [0, 10]


def refusal(stream: Stream) -> AfsparkError:
    """The error a stream ends with."""
    with pytest.raises((flight.FlightError, pa.ArrowException, OSError)) as caught:
        stream.close()
    return from_flight(caught.value, "")


def refusal_of_a_stream(client: Client) -> str:
    """What a stream that ends at once is answered with; empty if it is let through."""
    stream = client.stream(command=b"")
    stream.end()
    try:
        stream.close()
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        return type(from_flight(error, "")).__name__
    return ""


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def tagged(tag: bytes) -> Callable[[Stream], None]:
    return lambda stream: stream.writer.write_with_metadata(rows(0, 5), tag)


def unsound(stream: Stream) -> None:
    # A slice is written with its own offsets; a whole batch goes out as it is.
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2], pa.int64()),
            pa.Array.from_buffers(
                pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\x09\0\0\0\x04\0\0\0"), pa.py_buffer(b"abcdefgh")]
            ),
        ],
        schema=rows(0, 0).schema,
    )
    stream.writer.write_with_metadata(batch, BatchTag(0, 0).to_bytes())


@pytest.mark.parametrize(
    ("send", "kind"),
    [
        (tagged(b"{"), WireError),
        (tagged(b"\xff" * 100), WireError),
        (tagged(json.dumps({"lane": 0, "start": -1}).encode()), WireError),
        (tagged(b" " * 10_000), WireError),
        (tagged(BatchTag(0, (1 << 63) - 2).to_bytes()), WireError),
        (tagged(BatchTag(0, (1 << 53) - 4).to_bytes()), WireError),
        (tagged(BatchTag(7, 0).to_bytes()), UnknownLane),
        (tagged(BatchTag(0, 0, PunctuationMark(end=True)).to_bytes()), WireError),
        (lambda stream: (stream.send(0, 5), stream.send(6, 5)), OutOfOrder),
        (lambda stream: (stream.send(0, 5), stream.send(3, 5)), OutOfOrder),
        (lambda stream: stream.send(0, 50_000), LimitExceeded),
        (lambda stream: (stream.send(0, 5), stream.writer.write_batch(rows(5, 5))), WireError),
        (lambda stream: stream.writer.write_metadata(b"alone"), WireError),
        (unsound, UnsoundBatch),
    ],
    ids=[
        "no json", "garbage", "negative", "long tag", "64 bits", "last number", "lane",
        "punctuation with rows", "hole", "overlap", "oversized",
        "mixed", "no batch", "unsound",
    ],
)  # fmt: skip
def test_a_wrong_batch_ends_its_stream_alone(
    receiver: Receiver, send: Callable[[Stream], Any], kind: type[AfsparkError]
) -> None:
    stream = Client(receiver.address, "guilty").stream()
    send(stream)
    error = refusal(stream)
    assert type(error) is kind, error
    assert receiver.stats()["refused"][kind.__name__] == 1


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("n", pa.int32()), ("text", pa.string())]),
        pa.schema([("n", pa.int64())]),
        pa.schema([("text", pa.string()), ("n", pa.int64())]),
        pa.schema([("N", pa.int64()), ("text", pa.string())]),
        pa.schema([]),
    ],
    ids=lambda schema: ",".join(schema.names) or "none",
)
def test_another_schema_is_refused(receiver: Receiver, schema: pa.Schema) -> None:
    assert isinstance(refusal(Client(receiver.address).stream(schema)), SchemaMismatch)


@pytest.mark.parametrize(
    "command",
    [
        b"{}",
        b"garbage",
        b'{"version":1,"producer":"p","session":"00112233"}',
        b'{"version":2,"producer":"p/q","session":"00112233"}',
        b'{"version":2,"producer":"p","session":"XYZ"}',
    ],
)
def test_a_wrong_header_is_refused(receiver: Receiver, command: bytes) -> None:
    assert isinstance(refusal(Client(receiver.address).stream(command=command)), WireError)


@pytest.mark.parametrize("kind", ["hello", "bye", "attach", "settle", "confirm", "reboot", ""])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"version":2}', random.Random(1).randbytes(50)])
def test_a_wrong_action_is_refused(receiver: Receiver, kind: str, body: bytes) -> None:
    headers = [] if kind in (HELLO, BYE) else receiver.worker_access.headers()
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        Client(receiver.address, headers=headers).act(kind, body)
    assert isinstance(from_flight(caught.value, ""), WireError)


@pytest.mark.parametrize("ticket", [b"", b"{", b'{"version":2,"lane":9,"incarnation":1,"fence":1,"confirmed":{}}'])
def test_a_wrong_ticket_is_refused(receiver: Receiver, ticket: bytes) -> None:
    options = flight.FlightCallOptions(headers=receiver.worker_access.headers())
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        Client(receiver.address).flight.do_get(flight.Ticket(ticket), options).read_all()
    assert isinstance(from_flight(caught.value, ""), WireError | UnknownLane)


def test_too_many_producers_are_refused(receiver: Receiver) -> None:
    streams = [Client(receiver.address, f"p{number}").stream() for number in range(2)]
    for stream in streams:
        stream.send(0, 1)
        stream.ack_up_to(1)
    with pytest.raises(flight.FlightError) as caught:
        Client(receiver.address, "one more").hello()
    error = from_flight(caught.value, "")
    assert isinstance(error, LimitExceeded) and (error.allowed, error.found) == (3, 4)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500])
def test_strangers_on_the_port_do_no_harm(receiver: Receiver, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=5) as connection:
        connection.sendall(data)


def test_a_half_sent_stream_keeps_what_was_acknowledged(receiver: Receiver) -> None:
    client = Client(receiver.address, "torn")
    stream = client.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    again = client.again(receiver.address)
    client.close()
    del stream, client
    assert again.hello().received == {0: 5}


@pytest.fixture(scope="session")
def secrets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "token").write_text("0123456789abcdef0123\n")
    (folder / "other").write_text("fedcba9876543210fedc\n")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.mark.parametrize("token", [None, "other", "token"])
def test_only_the_token_opens(receive: Start, secrets_folder: Path, token: str | None) -> None:
    receiver = receive(security=Security(token_file=str(secrets_folder / "token")))
    access = Access(token_file=None if token is None else str(secrets_folder / token))
    client = Client(receiver.address, headers=access.headers())
    if token == "token":
        stream = client.stream()
        stream.send(0, 5)
        stream.ack_up_to(5)
        return
    uses: list[Callable[[], object]] = [client.hello, lambda: client.stream(command=b"").close()]
    for use in uses:
        with pytest.raises(flight.FlightUnauthenticatedError):
            use()


@pytest.mark.parametrize("guarded", [False, True])
def test_who_may_send_may_not_act_as_a_worker(receive: Start, secrets_folder: Path, guarded: bool) -> None:
    """With a token, the producers' is none for workers; without one, loopback is not enough either."""
    token = str(secrets_folder / "token") if guarded else None
    receiver = receive(security=Security(token_file=token), worker_secret="the secret of this start")
    client = Client(receiver.address, headers=Access(token_file=token).headers())
    stream = client.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    for access in (Access(token_file=token), Access(worker_secret="that of the start before")):
        with LaneClient(receiver.address, 0, incarnation=9, fence=9, access=access) as rogue:
            uses: list[Callable[[], object]] = [
                rogue.attach,
                lambda rogue=rogue: rogue.pull({}),
                lambda rogue=rogue: rogue.stop_logging({client.id: 5}),
                lambda rogue=rogue: rogue.confirm({client.id: 5}),
                rogue.stats,
            ]
            for use in uses:
                with pytest.raises(NotAllowed):
                    use()
    # Nor may a worker act as a producer.
    worker = Client(receiver.address, headers=receiver.worker_access.headers())
    for use in (worker.hello, lambda: worker.stream(command=b"").close()):
        with pytest.raises(flight.FlightUnauthenticatedError):
            use()
    with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access) as worker:
        assert [entry.end for entry in worker.pull({})] == [5], "nobody has locked it out or confirmed anything"
    assert "the secret" not in repr(receiver.worker_access)


def test_tls_with_a_certificate_from_a_file(receive: Start, secrets_folder: Path) -> None:
    security = Security(
        token_file=str(secrets_folder / "token"),
        cert_file=str(secrets_folder / "cert.pem"),
        key_file=str(secrets_folder / "key.pem"),
    )
    receiver = receive(host="0.0.0.0", security=security)
    address = f"grpc+tls://localhost:{receiver.port}"
    access = receiver.worker_access
    with LaneClient(address, 0, incarnation=1, fence=1, access=access) as worker:
        assert worker.attach().positions == {}
    for wrong in (Access(worker_secret=access.worker_secret), Access(root_certs_file=access.root_certs_file)):
        with (
            LaneClient(address, 0, incarnation=1, fence=1, access=wrong) as worker,
            pytest.raises(AfsparkError) as caught,
        ):
            worker.attach()
        assert isinstance(caught.value, ReceiverUnreachable | NotAllowed)
    with pytest.raises(flight.FlightError):
        Client(f"grpc://localhost:{receiver.port}").act(HELLO, Hello("p").to_bytes())


def test_sessions_that_end_leave_nothing_behind(receiver: Receiver) -> None:
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    for number in range(20):
        client = Client(receiver.address, f"short {number}")
        client.hello()
        stream = client.stream()
        stream.writer.write_with_metadata(rows(0, 0), BatchTag(0, 0).to_bytes())
        stream.end()
        stream.close()
        client.bye({})
        worker.confirm({client.id: 0})
        client.close()
    (left,) = receiver.stats()["lanes"]["0"]["sessions"]
    assert left.startswith("honest/")
    assert receiver.stats()["producers"] == 1


FAR = 10**15


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (lambda client: client.act(HELLO, Hello("rogue", "00000000", {0: FAR}).to_bytes()), UnknownSession),
        (lambda client: client.act(HELLO, Hello("rogue", "", {0: FAR}).to_bytes()), Unproven),
        (lambda client: client.hello({0: FAR}), Unproven),
        (lambda client: client.hello({0: 6}), Unproven),
        (lambda client: client.bye({0: FAR}), Unproven),
        (lambda client: client.act(BYE, Bye("rogue", "00000000", {0: FAR}).to_bytes()), UnknownSession),
        (lambda client: client.stream(command=claim_of(client, {0: FAR})).close(), Unproven),
        (lambda client: client.again_elsewhere(FAR), OutOfOrder),
    ],
    ids=["other session", "no session", "hello", "one too many", "bye", "other bye", "stream", "first number"],
)
def test_what_a_producer_says_was_acknowledged_is_not_believed_without_proof(
    receiver: Receiver, said: Callable[[Rogue], object], kind: type[AfsparkError]
) -> None:
    client = Rogue(receiver.address, "rogue")
    stream = client.stream()
    stream.send(0, 5)
    stream.ack_up_to(5)
    with pytest.raises((flight.FlightError, pa.ArrowException)) as caught:
        said(client)
    assert type(from_flight(caught.value, "")) is kind
    with LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access) as worker:
        mine = [(entry.start, entry.end) for entry in worker.pull({}) if entry.producer.startswith("rogue")]
    assert sorted(set(mine)) in ([(0, 5)], [(0, 0), (0, 5)]), "nothing is missing"


class Rogue(Client):
    """A producer that says more than is true."""

    def again_elsewhere(self, start: int) -> None:
        """Another session begins with a high number."""
        other = Client(self.address, "rogue too").stream()
        other.send(start, 1)
        other.close()


def claim_of(client: Client, acked: dict[int, int]) -> bytes:
    return PutHeader(client.name, client.session, acked, client.receipts).to_bytes()


def test_streams_that_never_send_are_limited(receiver: Receiver) -> None:
    client = Client(receiver.address, "idle")
    # Three producers may have six streams; the honest one has one of them.
    idle = [client.stream(command=b"") for _ in range(5)]
    eventually(lambda: refusal_of_a_stream(client) == "LimitExceeded")
    for stream in idle:
        stream.end()
        stream.close()


def test_pulls_that_wait_are_limited(receiver: Receiver) -> None:
    worker = LaneClient(receiver.address, 0, incarnation=1, fence=1, access=receiver.worker_access)
    everything = {receiver.stats()["lanes"]["0"]["sessions"][0]: 1000}
    waiting = [
        threading.Thread(target=worker.pull, args=({},), kwargs={"after": everything, "wait": 2.0}) for _ in range(64)
    ]
    for thread in waiting:
        thread.start()

    def is_refused() -> bool:
        try:
            worker.pull({}, after=everything, wait=0.0)
        except LimitExceeded as error:
            return error.limit == "pulls"
        return False

    eventually(is_refused)
    for thread in waiting:
        thread.join()
    assert worker.pull({}, after=everything) == []


def test_a_long_reason_arrives(receive: Start) -> None:
    wide = pa.schema([(f"a column with a long name {number}", pa.int64()) for number in range(400)])
    receiver = receive(schema=wide)
    other = pa.schema([(f"ein langer Name für eine Spalte {number}", pa.int32()) for number in range(400)])
    told = refusal(Client(receiver.address).stream(other))
    assert isinstance(told, SchemaMismatch)
    assert told.found.startswith("ein langer Name")


def test_a_name_that_is_no_text_is_answered(receiver: Receiver) -> None:
    schema = rows(0, 0).schema.serialize().to_pybytes().replace(b"text", b"te\xe4t")
    told = refusal(Client(receiver.address, "odd").stream(pa.ipc.read_schema(pa.py_buffer(schema))))
    assert isinstance(told, WireError)
    assert told.what == "utf-8"
    assert "internal" not in receiver.stats()["refused"]
