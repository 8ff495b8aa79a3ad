"""A producer and a worker are told in one line why TLS fails, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from afspark.push.consumer.lane_client import LaneClient
from afspark.push.producer.producer import Producer
from afspark.push.receiver.receiver import Receiver
from afspark.push.wire.push_errors import ReceiverUnreachable
from afspark.push.wire.security import Access, Security
from afspark.push.wire.unreachable import why_unreachable
from tests.unit.push.certificates import make_certificate
from tests.unit.push.flightclient import SCHEMA

Start = Callable[..., Receiver]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.mark.parametrize(
    ("served", "trusted", "reason"),
    [
        ("valid", "other", "its certificate is signed by nobody who is trusted here"),
        ("expired", "expired", "its certificate has expired"),
        ("future", "future", "its certificate is not valid yet"),
        ("elsewhere", "elsewhere", "its certificate does not name the host of this address"),
        ("valid", None, "it closed the connection at once"),
        (None, "valid", "it does not speak TLS"),
    ],
    ids=["wrong authority", "expired", "not yet valid", "another host", "plain against TLS", "TLS against plain"],
)
def test_why_tls_fails(receive: Start, folder: Path, served: str | None, trusted: str | None, reason: str) -> None:
    options = {
        "expired": {"begins": -30.0, "ends": -1.0},
        "future": {"begins": 1.0, "ends": 30.0},
        "elsewhere": {"names": "DNS:example.org,IP:10.1.2.3"},
    }
    made = {name: make_certificate(folder, name, **options.get(name, {})) for name in {served, trusted} - {None}}  # type: ignore[arg-type]
    security = None if served is None else Security(cert_file=made[served][0], key_file=made[served][1])
    roots = None if trusted is None else made[trusted][0]
    receiver = receive(security=security)
    address = f"{'grpc' if roots is None else 'grpc+tls'}://127.0.0.1:{receiver.port}"
    access = Access(root_certs_file=roots, worker_secret=receiver.worker_access.worker_secret)
    with (
        LaneClient(address, 0, incarnation=1, fence=1, access=access, timeout=5) as worker,
        pytest.raises(ReceiverUnreachable) as caught,
    ):
        worker.stats()
    producer = Producer(address, "p", SCHEMA, root_certificates=roots, give_up=0.1)
    with pytest.raises(ReceiverUnreachable) as failed:
        producer.end()
    producer.abort()
    for error in (caught.value, failed.value):
        assert error.reason.startswith(reason) and error.reason in error.message
        assert error.remedy and "\n" not in str(error) and "gRPC" not in str(error)


def test_what_is_not_known_is_told_as_it_came() -> None:
    assert why_unreachable("a new kind of trouble.\nand its details").reason == "a new kind of trouble"
    assert why_unreachable("").reason == "it gave no reason"
    assert "TLS" not in why_unreachable("Stream removed (Socket closed)").reason, "it may have died in a call"
