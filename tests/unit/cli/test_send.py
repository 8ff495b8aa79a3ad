"""``afspark send`` as a user sees it: rows that arrive, a summary, errors of one line, Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afspark.cli import send
from afspark.cli.main import main
from afspark.cli.progressbar import Display, RunProgress
from afspark.push.wire.addresses import join_address, split_address
from tests.unit.push.fake_receiver import SCHEMA, FakeReceiver
from tests.unit.push.flow_captures import SOFTFLOWD_IPFIX
from tests.unit.push.flow_exports import V6, a_set, flow, netflow_5, netflow_9, template
from tests.unit.push.loopback import needs_ipv6

ROOT = Path(__file__).parents[3]


@pytest.fixture
def receiver() -> Iterator[Callable[..., FakeReceiver]]:
    made: list[FakeReceiver] = []

    def make(**options: Any) -> FakeReceiver:
        made.append(FakeReceiver(**options))
        return made[-1]

    yield make
    for server in made:
        server.open.set()
        server.shutdown()


def start(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", "afspark", "send", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def numbers_of(server: FakeReceiver) -> list[int]:
    return [row["n"] for row in server.rows]


def soon(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    with socket.socket(type=kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_files_in_order_with_summary(
    receiver: Callable[..., FakeReceiver], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = receiver(lanes=(0, 1))
    (tmp_path / "a.csv").write_text("m,n\nx,0\ny,1\nz,bad\n")
    (tmp_path / "b.jsonl").write_text('{"n": 2}\n{"n": 3}\n')
    assert main(["send", server.address, str(tmp_path / "a.csv"), str(tmp_path / "b.jsonl"), "--end"]) == 0
    assert numbers_of(server) == [0, 1, 2, 3]
    assert [tag.lane for tag in server.tags if tag.punctuation and tag.punctuation.end] == [0, 1]
    told = capsys.readouterr().out
    assert "Sent 4 rows" in told and "Acknowledged 4" in told and "lost 0" in told and "Skipped 1 rows" in told


def test_limit_rate_and_quiet(
    receiver: Callable[..., FakeReceiver], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = receiver()
    (tmp_path / "a.csv").write_text("n\n" + "\n".join(map(str, range(1000))))
    began = time.monotonic()
    assert main(f"send {server.address} {tmp_path}/a.csv --limit 100 --rate 200 --quiet".split()) == 0
    assert 0.4 < time.monotonic() - began < 10
    assert numbers_of(server) == list(range(100))
    assert capsys.readouterr() == ("", "")


def test_punctuation_by_a_column(receiver: Callable[..., FakeReceiver], tmp_path: Path) -> None:
    server = receiver()
    (tmp_path / "a.csv").write_text("n\n" + "\n".join(map(str, range(25))))
    main(f"send {server.address} {tmp_path}/a.csv --punctuate-column n --punctuate-every 10 --quiet".split())
    marks = [(tag.start, tag.punctuation.time) for tag in server.tags if tag.punctuation]
    assert marks == [(10, 10.0), (21, 20.0)] and len(server.rows) == 25


def fails(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("afspark: error: ") and err.count("\n") == 1, err
    return err


def test_errors_are_one_line(
    receiver: Callable[..., FakeReceiver], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = receiver()
    good, bad = tmp_path / "a.csv", tmp_path / "b.csv"
    good.write_text("n\n1\n")
    bad.write_text("n\n1\nx\n")
    other = tmp_path / "c.csv"
    other.write_text("m\n1\n")
    there = f"send {server.address} --quiet"
    assert "could not be reached" in fails(capsys, f"send 127.0.0.1:{free_port()} {good} --give-up 0.2 --quiet")
    assert "'n'" in fails(capsys, f"{there} {other}")
    assert "'x'" in fails(capsys, f"{there} {bad} --on-bad stop")
    assert "no file" in fails(capsys, f"{there} {tmp_path}/none.csv")
    assert "format" in fails(capsys, f"{there} -")
    assert "port" in fails(capsys, f"send localhost {good}")
    assert "brackets" in fails(capsys, f"send ::1:7000 {good}")
    assert "token" in fails(capsys, f"{there} {good} --name refused")
    assert "punctuate" not in fails(capsys, f"{there} {good} --punctuate-column q --punctuate-every 1")
    assert "Cannot listen" in fails(capsys, f"{there} --listen-tcp 127.0.0.1:{server.port}")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "arrow"])
def test_standard_input(receiver: Callable[..., FakeReceiver], kind: str) -> None:
    server = receiver()
    process = start(server.address, "-", "--format", kind)
    if kind == "arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.record_batch([pa.array([1, 2, 3])], schema=SCHEMA))
        assert process.stdin is not None
        process.stdin.buffer.write(sink.getvalue().to_pybytes())
        out, err = process.communicate(timeout=60)
    else:
        text = {"csv": "n\n1\n2\n3\n", "jsonl": '{"n": 1}\n{"n": 2}\n{"n": 3}\n'}[kind]
        out, err = process.communicate(text, timeout=60)
    assert process.returncode == 0, err
    assert numbers_of(server) == [1, 2, 3] and "Acknowledged 3" in out


def test_what_a_pipe_has_is_sent_at_once_and_ctrl_c_ends_it(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    process = start(server.address, "-", "--format", "jsonl")
    assert process.stdin is not None
    process.stdin.write('{"n": 1}\n')
    process.stdin.flush()
    assert soon(lambda: numbers_of(server) == [1])
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 128 + signal.SIGINT
    assert process.stderr is not None and "everything that was sent is acknowledged" in process.stderr.read()
    assert len(server.byes) == 1
    process.communicate()


def test_ctrl_c_says_what_was_not_acknowledged(receiver: Callable[..., FakeReceiver], tmp_path: Path) -> None:
    server = receiver(unacked=10)
    server.open.clear()
    (tmp_path / "a.csv").write_text("n\n" + "\n".join(map(str, range(1000))))
    process = start(server.address, str(tmp_path / "a.csv"))
    assert soon(lambda: server.held == 10)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert "10 items (lane 0: 0-9) were not acknowledged" in err, err
    assert "lost 10" in out


def listening(address: str, *options: str) -> tuple[subprocess.Popen[str], tuple[str, int]]:
    """The command, once it listens, and where."""
    process = start(address, *options)
    assert process.stderr is not None
    said = process.stderr.readline()
    place = re.match(r"Listening at \w+://(\S+) ", said)
    assert place is not None, said
    return process, split_address(place[1])


def summary_of(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, err
    return out


def test_listening_to_datagrams(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(schema=pa.schema([("src", pa.int64()), ("bytes", pa.int64())]))
    process, place = listening(server.address, "--listen-udp", "127.0.0.1:0", "--format", "netflow")
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(netflow_5(2), place)
        sender.sendto(b"\0\x05rubbish", place)
        assert soon(lambda: len(server.rows) == 2)
    assert server.rows == [{"src": 0x0A000001 + n, "bytes": 1000 + n} for n in range(2)]
    told = summary_of(process)
    assert "Skipped 1 rows" in told and "dropped 0 datagrams" in told
    assert "Left out 1 datagram: damaged, or cut short." in told


@needs_ipv6
def test_flows_of_every_version_over_ipv6_with_what_was_left_out(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(schema=pa.schema([("version", pa.int64()), ("src", pa.string())]), host="::1")
    process, place = listening(server.address, "--listen-udp", "udp://[::1]:0", "--format", "netflow")
    assert place[0] == "::1"
    data = a_set(256, flow("2001:db8::1"))
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sender:
        for datagram in (
            netflow_9(data),
            netflow_9(a_set(0, template(256, V6)), data, sequence=3),
            netflow_5(1),
            b"\0\x08 from another decade",
            SOFTFLOWD_IPFIX,
        ):
            sender.sendto(datagram, place)
        assert soon(lambda: len(server.rows) == 9)
    assert [row["version"] for row in server.rows] == [9, 5] + [10] * 7
    assert server.rows[0]["src"] == "2001:db8::1"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert "::1" in err and "version 8" in err and "NetFlow 9" in err
    told = [line.removeprefix("Left out ").partition(":") for line in out.splitlines() if line.startswith("Left out ")]
    assert [(what, why.partition(" ")[2].split()[0]) for what, _, why in told] == [
        ("1 datagram", "neither"),
        ("1 set of flows", "no"),
        ("2 datagrams", "never"),
        ("1 record", "about"),
    ], out


def test_syslog_over_tcp_by_lines_and_by_octets(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver(schema=pa.schema([("app", pa.string()), ("message", pa.string())]))
    process, place = listening(server.address, "--listen-tcp", "127.0.0.1:0", "--format", "syslog")
    for stream in (
        b"65 <13>2026-11-16T17:30:05.781524+00:00 vm myapp[13515]: hello world9 ",
        b"<131>2026-11-16T17:30:05.984454+00:00 vm db: disk: full [a]\n",
    ):
        with socket.create_connection(place) as connection:
            connection.sendall(stream)
    assert soon(lambda: len(server.rows) == 2)
    assert sorted((row["app"], row["message"]) for row in server.rows) == [
        ("db", "disk: full [a]"),
        ("myapp", "hello world"),
    ]
    assert "Left out 1 frame: its length is wrong" in summary_of(process)


def test_listening_to_lines(receiver: Callable[..., FakeReceiver]) -> None:
    server = receiver()
    port = free_port()
    process = start(server.address, "--listen-tcp", f"127.0.0.1:{port}", "--format", "csv")
    assert process.stderr is not None and "Listening" in process.stderr.readline()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"1\n2\nx\n3\n")
        assert soon(lambda: numbers_of(server) == [1, 2, 3])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM


def test_progress_tells_what_is_left_out(
    receiver: Callable[..., FakeReceiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Recording(Display):
        def show(self, now: RunProgress) -> None:
            shown.append(now.facts)

    monkeypatch.setattr(send, "display_for", lambda quiet: Recording())
    server = receiver(schema=pa.schema([("src", pa.int64())]))
    place = ("127.0.0.1", free_port(socket.SOCK_DGRAM))

    def talk() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            for _ in range(200):
                sender.sendto(b"\0\x05rubbish", place)
                sender.sendto(netflow_5(1), place)
                time.sleep(0.05)
                if server.rows:
                    return

    talker = threading.Thread(target=talk)
    talker.start()
    listen = ["--listen-udp", join_address(*place), "--format", "netflow"]
    assert main(["send", server.address, *listen, "--limit", "1"]) == 0
    talker.join()
    assert re.search(r"1 rows acknowledged · 0 under way · 0 resent · \d+ bad · \d+ malformed datagrams", shown[-1])


def test_it_starts_without_spark() -> None:
    code = (
        "import sys, afspark.cli.main, afspark.cli.send; print({'pyspark', 'numba', 'matplotlib'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
