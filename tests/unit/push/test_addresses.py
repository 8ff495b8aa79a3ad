"""Addresses as people write them, IPv6 among them, up to a receiver that is found by its directory."""

from __future__ import annotations

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.push.producer.link import location_of
from afspark.push.producer.producer import Producer
from afspark.push.receiver.directory import Directory
from afspark.push.receiver.receiver import Receiver, ReceiverConfig
from afspark.push.wire.addresses import join_address, split_address
from tests.unit.push.loopback import needs_ipv6

SCHEMA = pa.schema([("item", pa.int64())])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("localhost:514", ("localhost", 514)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::]:65535", ("::", 65_535)),
        ("[2001:db8::1]:1", ("2001:db8::1", 1)),
        ("[fe80::1%lo]:1", ("fe80::1%lo", 1)),
    ],
)
def test_host_and_port(text: str, place: tuple[str, int]) -> None:
    assert split_address(text) == place and join_address(*place) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "host:٣", "::1:514"])
def test_no_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        split_address(text)


@pytest.mark.parametrize("text", ["[]:1", "[::1", "[::g]:1", "[host]:1", "[127.0.0.1]:1", "::1]:1"])
def test_brackets_are_for_ipv6(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - some are from ipaddress
        split_address(text)


@pytest.mark.parametrize("address", ["::1:7000", "[::1]", "[::1]:0", "grpc://::1:7000", "http://[::1]:7000"])
def test_a_receiver_has_no_such_address(address: str) -> None:
    with pytest.raises(UsageError):
        location_of(address, tls=False)


@needs_ipv6
def test_producer_directory_and_receiver_over_ipv6() -> None:
    receiver = Receiver(ReceiverConfig(schema=SCHEMA, lanes=(0,), host="::1"))
    assert receiver.start().startswith("grpc://[::1]:")
    directory = Directory(SCHEMA, lambda: [receiver.address], host="::1", port=0)
    try:
        assert directory.address == f"grpc://[::1]:{directory.port}"
        with Producer(f"[::1]:{directory.port}", "p", SCHEMA) as producer:
            producer.send(pa.record_batch({"item": [1, 2, 3]}, schema=SCHEMA))
        assert receiver.stats()["accepted"] == 3
        with pytest.raises(UsageError, match=r"\[::1\]:"):
            Receiver(ReceiverConfig(schema=SCHEMA, lanes=(0,), host="::1", port=receiver.port)).start()
    finally:
        directory.shutdown()
        receiver.stop()
