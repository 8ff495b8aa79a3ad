"""Packets and lines over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.push.adapters.datagrams import Datagrams
from afspark.push.adapters.framing import SyslogFrames
from afspark.push.adapters.gathering import Listener, bound
from afspark.push.adapters.netflow import NetFlow
from afspark.push.adapters.syslog import Syslog
from afspark.push.adapters.tcplines import TcpLines
from afspark.push.producer.line_formats import TextLines
from afspark.push.producer.producer import Producer
from tests.unit.push.fake_receiver import FakeReceiver
from tests.unit.push.flow_exports import netflow_5
from tests.unit.push.loopback import needs_ipv6

HERE = ("127.0.0.1", 0)
HERE_6 = ("::1", 0)
TEXT = pa.schema([("value", pa.string())])


def soon(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_datagrams_come_in_order_and_in_time() -> None:
    with Datagrams(HERE, flush_seconds=0.1) as datagrams, socket.socket(type=socket.SOCK_DGRAM) as sender:
        sent = [b"<13>line %d\n" % n for n in range(500)]
        for each in sent:
            sender.sendto(each, datagrams.address)
        seen: list[bytes] = []
        began = time.monotonic()
        for many in datagrams:
            seen += [data for data, sender in many if sender[0] == "127.0.0.1"]
            if len(seen) == len(sent):
                datagrams.stop()
        assert seen == sent and time.monotonic() - began < 10
        assert datagrams.dropped == 0
    schema = pa.schema([("severity", pa.int32()), ("message", pa.string())])
    rows = Syslog(schema).datagrams(seen)
    assert rows.batch.num_rows == 500
    assert rows.batch.slice(7, 1).to_pylist() == [{"severity": 5, "message": "line 7"}]


def test_what_the_kernel_drops_is_counted() -> None:
    with (
        Datagrams(HERE, flush_bytes=1000, queued=1) as datagrams,
        socket.socket(type=socket.SOCK_DGRAM) as sender,
    ):
        sent = 20_000
        for _ in range(sent):  # nobody iterates: the queue fills, the thread waits, the kernel drops
            sender.sendto(b"x" * 1000, datagrams.address)
        assert soon(lambda: bool(datagrams.dropped))
        seen = 0
        stop = threading.Timer(1.0, datagrams.stop)
        stop.start()
        for many in datagrams:
            seen += len(many)
        dropped = datagrams.dropped
    assert dropped is not None and dropped > 0
    assert seen + dropped == sent
    assert datagrams.dropped == dropped


def test_lines_of_many_connections() -> None:
    def talk(who: int) -> None:
        with socket.create_connection(lines.address) as connection:
            for n in range(200):
                connection.sendall(f"{who} {n}\n".encode())
            connection.sendall(f"{who} last".encode())  # without an end

    with TcpLines(HERE, flush_seconds=0.05) as lines:
        talkers = [threading.Thread(target=talk, args=(who,)) for who in range(5)]
        for talker in talkers:
            talker.start()
        seen: list[str] = []
        for block in lines:
            seen += TextLines(TEXT)(block).batch["value"].to_pylist()
            if len(seen) == 5 * 201:
                lines.stop()
    for who in range(5):
        assert [line for line in seen if line.startswith(f"{who} ")] == [f"{who} {n}" for n in [*range(200), "last"]]


def test_a_line_too_long_is_left_out_and_counted() -> None:
    with TcpLines(HERE, max_line_bytes=1000, flush_seconds=0.05) as lines:
        with socket.create_connection(lines.address) as connection:
            connection.sendall(b"before\n" + b"x" * 3_000_000 + b"\nafter\n")
        seen = b""
        for block in lines:
            seen += block
            if seen.endswith(b"after\n"):
                lines.stop()
    assert seen == b"before\nafter\n" and lines.counts.too_long == 1


def test_a_fast_tcp_sender_waits_and_loses_nothing() -> None:
    with TcpLines(HERE, flush_bytes=10_000, queued=1) as lines:
        payload = b"0123456789\n" * 2_000_000
        done = threading.Event()

        def talk() -> None:
            with socket.create_connection(lines.address) as connection:
                connection.sendall(payload)
            done.set()

        threading.Thread(target=talk, daemon=True).start()
        assert not done.wait(1.0), "the sender has to wait while nobody takes its lines"
        size = 0
        for block in lines:
            size += len(block)
            if size == len(payload):
                lines.stop()
    assert done.is_set()


def test_from_a_socket_to_a_receiver() -> None:
    server = FakeReceiver(schema=TEXT)
    try:
        with TcpLines(HERE, flush_seconds=0.02) as lines, Producer(server.address, "tcp", TEXT) as producer:
            parse = TextLines(TEXT)
            with socket.create_connection(lines.address) as connection:
                connection.sendall(b"one\ntwo\nthree\n")
            for block in lines:
                producer.send(parse(block).batch)
                if producer.counters.taken == 3:
                    lines.stop()
        assert [row["value"] for row in server.rows] == ["one", "two", "three"]
    finally:
        server.shutdown()


def test_a_port_in_use_is_said() -> None:
    with TcpLines(HERE) as lines, pytest.raises(UsageError):
        TcpLines(lines.address)
    with pytest.raises(UsageError):
        bound(("no.such.host.invalid", 1), socket.SOCK_STREAM)


def until_stopped(listener: Listener[Any], seconds: float = 20.0) -> Iterator[Any]:
    """What it gives until somebody stops it, or the test has taken too long."""
    guard = threading.Timer(seconds, listener.stop)
    guard.start()
    yield from listener
    guard.cancel()


MESSAGES = pa.schema([("app", pa.string()), ("message", pa.string())])


def test_syslog_with_counted_octets_and_by_lines_at_once() -> None:
    """Each connection in its own way, in pieces of any size."""
    counted = b"42 <131>Nov 16 17:30:05 vm db: disk: full [a]44 <38>Nov 16 17:30:06 vm su: line one\nline two"
    lines = b"<13>Nov 16 17:30:05 vm myapp[13515]: hello world\n<13>Nov 16 17:30:06 vm umlaut: gr\xc3\xbcn\n"

    def talk(content: bytes, size: int) -> None:
        with socket.create_connection(listener.address) as connection:
            for start in range(0, len(content), size):
                connection.sendall(content[start : start + size])
                time.sleep(0.001)

    with TcpLines(HERE, framing=SyslogFrames, flush_seconds=0.05) as listener:
        talkers = [
            threading.Thread(target=talk, args=(text, size)) for text in (counted, lines) for size in (1, 7, 999)
        ]
        for talker in talkers:
            talker.start()
        seen: list[tuple[str, str]] = []
        for block in until_stopped(listener):
            seen += [(row["app"], row["message"]) for row in Syslog(MESSAGES)(block).batch.to_pylist()]
            if len(seen) == 12:
                listener.stop()
    expected = [("db", "disk: full [a]"), ("su", "line one line two"), ("myapp", "hello world"), ("umlaut", "grün")]
    assert sorted(seen) == sorted(expected * 3)
    assert (listener.counts.malformed, listener.counts.too_long) == (0, 0)


def test_a_connection_with_broken_frames_is_closed_and_counted() -> None:
    with TcpLines(HERE, framing=SyslogFrames, flush_seconds=0.05) as listener:
        with socket.create_connection(listener.address) as connection:
            connection.sendall(b"9 <13>first<13>no length")
            connection.settimeout(10)
            assert connection.recv(1) == b"", "the sender has to begin anew"
        with socket.create_connection(listener.address) as connection:
            connection.sendall(b"10 <13>second99 <13>cut short")
        assert soon(lambda: listener.counts.malformed == 2)
        listener.stop()
        seen = b"".join(listener)
    assert sorted(seen.splitlines()) == [b"<13>first", b"<13>second"]


@needs_ipv6
def test_datagrams_over_ipv6() -> None:
    flows = NetFlow(pa.schema([("exporter", pa.string()), ("src", pa.string())]))
    with (
        Datagrams(HERE_6, flush_seconds=0.05) as datagrams,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender,
    ):
        assert datagrams.address[0] == "::1"
        sender.sendto(netflow_5(1), datagrams.address)
        rows = flows.datagrams(next(until_stopped(datagrams)))
        assert datagrams.dropped == 0
    assert rows.batch.to_pylist() == [{"exporter": "::1", "src": "10.0.0.1"}]


@needs_ipv6
def test_one_socket_for_ipv4_and_ipv6() -> None:
    flows = NetFlow(pa.schema([("exporter", pa.string())]))
    with Datagrams(("::", 0), flush_seconds=0.05) as datagrams:
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.sendto(netflow_5(1), (host, datagrams.address[1]))
        seen: list[str] = []
        for many in until_stopped(datagrams):
            seen += flows.datagrams(many).batch["exporter"].to_pylist()
            if len(seen) == 2:
                datagrams.stop()
    assert sorted(seen) == ["127.0.0.1", "::1"]


@needs_ipv6
def test_lines_over_ipv6_to_a_receiver_over_ipv6() -> None:
    server = FakeReceiver(schema=TEXT, host="::1")
    try:
        with TcpLines(HERE_6, flush_seconds=0.02) as lines, Producer(server.address, "tcp", TEXT) as producer:
            with socket.create_connection(lines.address) as connection:
                connection.sendall(b"one\ntwo\n")
            for block in until_stopped(lines):
                producer.send(TextLines(TEXT)(block).batch)
                if producer.counters.taken == 2:
                    lines.stop()
        assert [row["value"] for row in server.rows] == ["one", "two"]
        with TcpLines(HERE_6) as lines, pytest.raises(UsageError, match=r"\[::1\]:"):
            TcpLines(lines.address)
    finally:
        server.shutdown()
