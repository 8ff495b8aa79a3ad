"""The producer and the real receiver together: kills, cut connections, γ, tokens and certificates."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.cli.main import main
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.producer.producer import Producer
from afspark.push.receiver.flight_endpoint import FlightEndpoint, sever
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.receiver.session_listing import start_name
from afspark.push.wire.push_errors import NotAllowed, PushError, ReceiverUnreachable, SchemaMismatch, SessionOver
from afspark.push.wire.security import Security
from afspark.store import open_store
from tests.unit.push.child_receiver import WORKERS, ChildReceiver
from tests.unit.push.fake_receiver import SCHEMA
from tests.unit.push.killable_receiver import KillableReceiver

pytestmark = pytest.mark.some(3)

needs_schema = pytest.mark.skipif("get_schema" not in vars(FlightEndpoint), reason="the receiver tells no schema")


def numbers(start: int, stop: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, stop), pa.int64())], schema=SCHEMA)


def soon(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds()


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    made: list[Receiver] = []

    def start(**options: Any) -> Receiver:
        usual = {"schema": SCHEMA, "lanes": (0,), "worker_secret": WORKERS.worker_secret}
        receiver = Receiver(ReceiverConfig(**usual | options))
        receiver.start()
        made.append(receiver)
        return receiver

    yield start
    for receiver in made:
        receiver.stop()


class Worker:
    """Takes items off a lane as a worker does, and keeps what it got; a number twice is an error."""

    def __init__(self, address: str, lane: int) -> None:
        self.values: list[int] = []
        self.punctuations: list[Any] = []
        self.gaps: list[tuple[int, int]] = []
        self.positions: dict[str, int] = {}
        self._address, self._lane = address, lane
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(30)

    def _run(self) -> None:
        worker = LaneClient(self._address, self._lane, incarnation=1, fence=1, access=WORKERS, timeout=5)
        attached = False
        while not self._over.is_set():
            try:
                if not attached:
                    worker.attach(self.positions)
                    attached = True
                self._take(worker.pull(self.positions, wait=0.05))
            except PushError:
                attached = False
                time.sleep(0.02)
        worker.close()

    def _take(self, pulled: list[Any]) -> None:
        for entry in pulled:
            position = self.positions.get(entry.producer, 0)
            if entry.start > position:
                self.gaps.append((position, entry.start))
            if entry.batch is not None and entry.end > position:
                self.values += entry.batch["n"].to_pylist()[max(0, position - entry.start) :]
            if entry.punctuation is not None and entry.end > position:
                self.punctuations.append(entry.punctuation)
            self.positions[entry.producer] = max(position, entry.end)


def test_everything_arrives_once(receive: Callable[..., Receiver], tmp_path: Path) -> None:
    receiver = receive(lanes=(0, 1), store=open_store(tmp_path), allow_items=500)
    workers = [Worker(receiver.address, lane) for lane in (0, 1)]
    with Producer(receiver.address, "p", SCHEMA, batch_rows=100) as producer:
        for start in range(0, 20_000, 1000):
            producer.send(numbers(start, start + 1000))
        producer.punctuate(time=3)
        producer.end()
    assert soon(lambda: sum(len(worker.punctuations) for worker in workers) == 4)
    for worker in workers:
        worker.stop()
        assert worker.values == sorted(worker.values) and not worker.gaps
    assert sorted(workers[0].values + workers[1].values) == list(range(20_000))
    assert producer.counters.acknowledged == 20_000 and not producer.lost


@pytest.mark.parametrize("killed", [0.05, 0.15, 0.3])
def test_what_was_acknowledged_out_of_the_log_outlives_producer_and_receiver(tmp_path: Path, killed: float) -> None:
    with ChildReceiver(SCHEMA, 1, store=tmp_path, allow_items=0, log_first=True) as receiver:
        producer = Producer(receiver.address, "p", SCHEMA, batch_rows=100)

        def send() -> None:
            with contextlib.suppress(PushError):
                for start in range(0, 1_000_000, 1000):
                    producer.send(numbers(start, start + 1000))

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        assert soon(lambda: producer.counters.acknowledged >= 1000)
        time.sleep(killed)
        producer.abort()
        acknowledged = producer.counters.acknowledged
        sender.join(30)
    with ChildReceiver(SCHEMA, 1, store=tmp_path, allow_items=0, log_first=True) as receiver:
        worker = Worker(receiver.address, 0)
        assert soon(lambda: len(worker.values) >= acknowledged)
        worker.stop()
    assert worker.values == list(range(len(worker.values))) and not worker.gaps


def test_gamma_is_the_receivers(receive: Callable[..., Receiver]) -> None:
    receiver = receive(unacked=10, ack_when_confirmed=True)
    producer = Producer(receiver.address, "p", SCHEMA)
    sender = threading.Thread(target=lambda: producer.send(numbers(0, 1000)), daemon=True)
    sender.start()
    assert soon(lambda: producer.unacknowledged == 10)
    time.sleep(0.2)
    assert receiver.stats()["pending_items"] == 10 and sender.is_alive()
    worker = Worker(receiver.address, 0)
    sender.join(30)
    producer.close(30)
    worker.stop()
    assert worker.values == list(range(1000))


def test_a_cut_connection_costs_nothing(receive: Callable[..., Receiver]) -> None:
    receiver = receive(lanes=(0, 1))
    workers = [Worker(receiver.address, lane) for lane in (0, 1)]
    producer = Producer(receiver.address, "p", SCHEMA, unacked=2000)

    def send() -> None:
        for start in range(0, 100_000, 100):
            producer.send(numbers(start, start + 100))

    sender = threading.Thread(target=send)
    sender.start()
    for least in (20_000, 50_000, 80_000):
        assert soon(lambda least=least: producer.counters.acknowledged >= least)  # type: ignore[misc]
        sever(receiver.port)
    sender.join(60)
    producer.close(30)
    assert soon(lambda: sum(len(worker.values) for worker in workers) >= 100_000)
    for worker in workers:
        worker.stop()
    assert sorted(workers[0].values + workers[1].values) == list(range(100_000))
    assert producer.counters.reconnects >= 1


@pytest.mark.parametrize("allow", [0, 300])
def test_a_killed_receiver_loses_no_more_than_it_may(tmp_path: Path, allow: int) -> None:
    draw = random.Random(allow)
    server = KillableReceiver(0, tmp_path, allow)
    port = server.port
    workers = [Worker(f"grpc://127.0.0.1:{port}", lane) for lane in (0, 1)]
    producer = Producer(f"127.0.0.1:{port}", "p", SCHEMA, unacked=1000, give_up=60)
    total, kills = 40_000, 2

    def send() -> None:
        for start in range(0, total, 50):
            producer.send(numbers(start, start + 50))
            if start % 10_000 == 0:
                producer.punctuate(time=start)
        producer.end()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for kill in range(1, kills + 1):
            least = draw.randrange(1000, 10_000) * kill
            assert soon(lambda least=least: producer.counters.acknowledged >= least)  # type: ignore[misc]
            server.kill()
            server = KillableReceiver(port, tmp_path, allow)
        sender.join(60)
        producer.close(30)
        assert soon(lambda: all(worker.punctuations and worker.punctuations[-1].end for worker in workers))
        time.sleep(0.2)
    finally:
        for worker in workers:
            worker.stop()
        server.kill()
    seen = sorted(workers[0].values + workers[1].values)
    assert len(set(seen)) == len(seen), "no item twice"
    lost = total - len(seen)
    assert lost <= kills * len(workers) * allow
    assert sum(end - start for worker in workers for start, end in worker.gaps) == lost
    assert [len(worker.punctuations) for worker in workers] == [5, 5]
    assert producer.counters.acknowledged == total and producer.counters.reconnects >= kills


@pytest.mark.parametrize("unacked", [None, 0])
def test_what_another_query_has_not_seen_is_sent_to_it_in_another_session(
    receive: Callable[..., Receiver], unacked: int | None
) -> None:
    first = receive()
    producer = Producer(f"127.0.0.1:{first.port}", "p", SCHEMA, unacked=unacked, give_up=30)
    producer.send(numbers(0, 10))
    producer.flush(10)
    before = producer.id
    first.stop(save=False)
    sender = threading.Thread(target=lambda: producer.send(numbers(10, 15)), daemon=True)
    sender.start()
    assert soon(lambda: producer.unacknowledged == 5)
    second = receive(port=first.port)
    sender.join(30)
    producer.close(30)
    worker = Worker(second.address, 0)
    assert soon(lambda: len(worker.values) == 5)
    worker.stop()
    assert worker.values == list(range(10, 15)) and not worker.gaps, "what the other query had is not missing here"
    assert producer.counters.acknowledged == 15 and producer.id != before


def test_a_session_that_is_over_is_not_continued_in_silence(receive: Callable[..., Receiver], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    receiver = receive(store=store, ack_when_confirmed=True)
    idle, busy = (Producer(f"127.0.0.1:{receiver.port}", name, SCHEMA, give_up=30) for name in ("idle", "busy"))
    before = idle.id
    busy.send(numbers(0, 5))
    assert soon(lambda: receiver.stats()["pending_items"] == 5)
    receiver.stop()
    # All sessions that were begun so far were listed, and are not listed any more.
    receiver = receive(store=store, port=receiver.port, listed={0: {start_name(1): 2}})
    with pytest.raises(SessionOver) as caught:
        busy.flush(30)
    assert caught.value.items == 5 and caught.value.lost.lanes == {0: (0, 5)}
    # What has nothing under way cannot be counted twice.
    idle.send(numbers(0, 5))
    idle.close(30)
    assert idle.id != before and receiver.stats()["accepted"] == 5


@pytest.fixture(scope="module")
def secrets_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    (folder / "token").write_text("a-token-of-some-length\n")
    (folder / "wrong").write_text("another-token-of-some-length\n")
    (folder / "a.csv").write_text("n\n1\n2\n")
    return folder


def test_token_and_certificates(receive: Callable[..., Receiver], secrets_folder: Path) -> None:
    cert, key, token = (str(secrets_folder / name) for name in ("cert.pem", "key.pem", "token"))
    receiver = receive(security=Security(token_file=token, cert_file=cert, key_file=key))
    address = f"127.0.0.1:{receiver.port}"
    with Producer(address, "p", SCHEMA, token="a-token-of-some-length", root_certificates=cert) as producer:
        producer.send(numbers(0, 10))
    assert producer.counters.acknowledged == 10
    with pytest.raises(NotAllowed):
        Producer(address, "p", SCHEMA, token="wrong", root_certificates=cert).send(numbers(0, 1))
    with pytest.raises(NotAllowed):
        Producer(address, "p", SCHEMA, root_certificates=Path(cert).read_bytes()).send(numbers(0, 1))
    with pytest.raises(ReceiverUnreachable):
        Producer(address, "p", SCHEMA, token="a-token-of-some-length", give_up=0.3).send(numbers(0, 1))


def test_a_wrong_schema_is_refused_once_and_for_all(receive: Callable[..., Receiver]) -> None:
    other = pa.schema([("n", pa.int32())])
    producer = Producer(receive().address, "p", other)
    producer.send(pa.record_batch([pa.array([1], pa.int32())], schema=other))
    with pytest.raises(SchemaMismatch):
        producer.close(30)
    assert producer.lost.items == 1


@needs_schema
def test_send_from_the_shell(
    receive: Callable[..., Receiver], secrets_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cert, key, token = (str(secrets_folder / name) for name in ("cert.pem", "key.pem", "token"))
    receiver = receive(security=Security(token_file=token, cert_file=cert, key_file=key))
    line = ["send", f"127.0.0.1:{receiver.port}", str(secrets_folder / "a.csv"), "--tls-ca", cert, "--token-file"]
    assert main([*line, token, "--end"]) == 0
    assert receiver.stats()["acknowledged"] == 3
    capsys.readouterr()
    assert main([*line, str(secrets_folder / "wrong"), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert "token" in err and err.count("\n") == 1
