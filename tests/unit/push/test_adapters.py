"""Packets and lines over real sockets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from afspark.errors import InputError, UsageError
from afspark.push.adapters import netflow, syslog
from afspark.push.adapters.datagrams import Datagrams
from afspark.push.adapters.gathering import bound
from afspark.push.adapters.netflow import NetFlow
from afspark.push.adapters.syslog import Syslog
from afspark.push.adapters.tcplines import TcpLines
from afspark.push.lines import TextLines
from afspark.push.producer import Producer
from tests.unit.push.fake_receiver import FakeReceiver

HERE = ("127.0.0.1", 0)
TEXT = pa.schema([("value", pa.string())])


def soon(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def packet(count: int, sequence: int = 0, version: int = 5) -> bytes:
    header = struct.pack(">HHIIIIBBH", version, count, 1000, 1_700_000_000, 5, sequence, 0, 1, 0)
    return header + b"".join(
        struct.pack(
            ">IIIHHIIIIHHBBBBHHBBH",
            *(0x0A000001 + n, 0x0A000002, 0, 1, 2, 10 + n, 1000 + n, 0, 9, 1024 + n, 443, 0, 2, 6, 0, 1, 2, 24, 16, 0),
        )
        for n in range(count)
    )


def test_netflow_records_become_rows() -> None:
    schema = pa.schema([("src", pa.int64()), ("dst_port", pa.int32()), ("bytes", pa.int64()), ("seconds", pa.int64())])
    rows = NetFlow(schema).datagrams([packet(2), b"rubbish", packet(30), packet(3, version=9), packet(3)[:-1], b""])
    assert rows.batch.num_rows == 32 and rows.bad == 4
    assert rows.batch.slice(0, 2).to_pylist() == [
        {"src": 0x0A000001, "dst_port": 443, "bytes": 1000, "seconds": 1_700_000_000},
        {"src": 0x0A000002, "dst_port": 443, "bytes": 1001, "seconds": 1_700_000_000},
    ]
    assert netflow.HEADER.itemsize == 24 and netflow.RECORD.itemsize == 48
    assert NetFlow(schema).datagrams([b"x"]).batch.num_rows == 0
    with pytest.raises(InputError):
        NetFlow(TEXT)


def test_netflow_at_once_equals_one_by_one() -> None:
    packets = [packet(count, sequence) for sequence, count in enumerate([1, 30, 7])]
    together, _ = netflow.parse(packets)
    alone = [netflow.parse([each])[0] for each in packets]
    assert all(
        np.array_equal(column, np.concatenate([each[name] for each in alone])) for name, column in together.items()
    )


def test_syslog_old_new_and_neither() -> None:
    lines = [
        "<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed",
        '<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [a@1 b="\\]"][c] An event',
        "<13>1 - - - - - -",
        "just text",
        "",
    ]
    found = syslog.parse(pa.array(lines)).to_pylist()
    assert [(row["facility"], row["severity"], row["app"]) for row in found] == [
        (4, 2, "su"), (20, 5, "evntslog"), (1, 5, "-"), (1, 5, None), (1, 5, None),
    ]  # fmt: skip
    assert found[0]["host"] == "mymachine" and found[0]["message"] == "'su root' failed"
    assert found[0]["timestamp"] == "Oct 11 22:14:15" and found[1]["timestamp"] == "2003-10-11T22:14:15.003Z"
    assert found[3]["message"] == "just text"
    with pytest.raises(InputError):
        Syslog(TEXT)


def test_datagrams_come_in_order_and_in_time() -> None:
    with Datagrams(HERE, flush_seconds=0.1) as datagrams, socket.socket(type=socket.SOCK_DGRAM) as sender:
        sent = [b"<13>line %d\n" % n for n in range(500)]
        for each in sent:
            sender.sendto(each, datagrams.address)
        seen: list[bytes] = []
        began = time.monotonic()
        for many in datagrams:
            seen += many
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
    assert seen == b"before\nafter\n" and lines.too_long == 1


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
