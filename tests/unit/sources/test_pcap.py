"""Captures: every byte order, resolution, link type and IP version; damage is counted, or stops the reading."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.errors import InputError, UsageError
from afspark.model.kernels.captures import Chain
from afspark.sources import PcapFiles, source_from_json
from tests.unit.sources.captures import Capture, ethernet, ipv4, ipv6
from tests.unit.sources.conftest import DictStore

NULLS = dict.fromkeys(["src", "dst", "bytes", "second", "protocol"])
PAIR = ("10.0.0.1", "192.168.255.4")


def row(src: str, dst: str, size: int, protocol: int = 6, second: int = 1_600_000_000) -> dict[str, Any]:
    return {"src": src, "dst": dst, "bytes": size, "second": second, "protocol": protocol}


def read(path: Path, **settings: Any) -> list[dict[str, Any]]:
    source = PcapFiles(str(path), **settings)
    planner = source.planner(DictStore())
    chunks = planner.chunks(planner.initial(), planner.discover())
    assert sum(chunk.stop - chunk.start for chunk in chunks) in (path.stat().st_size, path.stat().st_size - 24)
    batches = [batch for chunk in chunks for batch in source.read(chunk)]
    assert all(batch.schema == source.schema() for batch in batches)
    return pa.Table.from_batches(batches, source.schema()).to_pylist()


def write(tmp_path: Path, data: bytes, name: str = "a.pcap") -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("nanoseconds", [False, True], ids=["micro", "nano"])
def test_byte_orders_and_resolutions(tmp_path: Path, big: bool, nanoseconds: bool) -> None:
    capture = Capture(big=big, nanoseconds=nanoseconds).add(ethernet(ipv4(*PAIR)), 5, wire=1500)
    capture.add(ethernet(ipv6("2001:db8::1", "::")), 2**32 - 1)
    assert read(write(tmp_path, capture.to_bytes())) == [
        row(*PAIR, 1500, second=5),
        row("2001:db8::1", "::", 54, 17, 2**32 - 1),
    ]


@pytest.mark.parametrize(
    ("link", "before"),
    [
        (1, bytes(12) + b"\x08\x00"),
        (0x10000001, bytes(12) + b"\x08\x00"),
        (113, bytes(14) + b"\x08\x00"),
        (0, b"\x02\0\0\0"),
        *((raw, b"") for raw in (12, 14, 101, 228)),
    ],
)
def test_link_types(tmp_path: Path, link: int, before: bytes) -> None:
    capture = Capture(link=link).add(before + ipv4(*PAIR, protocol=17))
    assert read(write(tmp_path, capture.to_bytes())) == [row(*PAIR, 20 + len(before), 17)]


def test_vlan_tags_and_extension_headers(tmp_path: Path) -> None:
    options = bytes([44, 1]) + bytes(14) + bytes([6, 0]) + bytes(6)
    capture = Capture().add(ethernet(ipv4(*PAIR), vlans=2)).add(ethernet(ipv6("::1", "ff02::1", 0, options)))
    assert [(found["dst"], found["protocol"]) for found in read(write(tmp_path, capture.to_bytes()))] == [
        (PAIR[1], 6),
        ("ff02::1", 6),
    ]


def test_frames_without_ip_are_left_out(tmp_path: Path) -> None:
    capture = Capture().add(ethernet(bytes(28), 0x0806)).add(ethernet(ipv4(*PAIR))).add(ethernet(b"", 0x88CC))
    assert read(write(tmp_path, capture.to_bytes()), on_bad="stop") == [row(*PAIR, 34)]


groups = st.lists(st.one_of(st.just(0), st.integers(0, 2**16 - 1)), min_size=8, max_size=8)


@given(parts=st.lists(groups, min_size=1, max_size=20), fours=st.lists(st.integers(0, 2**32 - 1), max_size=9))
def test_addresses_read_as_python_writes_them(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], fours: list[int]
) -> None:
    sixes = [str(ipaddress.IPv6Address(b"".join(g.to_bytes(2, "big") for g in part))) for part in parts]
    plain = [str(ipaddress.IPv4Address(four)) for four in fours]
    capture = Capture(link=101)
    for address in sixes:
        capture.add(ipv6(address, "::"))
    for address in plain:
        capture.add(ipv4("0.0.0.0", address))
    found = read(write(tmp_path_factory.mktemp("pcap"), capture.to_bytes()))
    # Python writes addresses with an embedded IPv4 in its own way; as numbers all are comparable.
    assert [ipaddress.ip_address(one["src"]) for one in found[: len(sixes)]] == list(map(ipaddress.ip_address, sixes))
    assert all(one["src"] == six for one, six in zip(found, sixes, strict=False) if "." not in six)
    assert [one["dst"] for one in found[len(sixes) :]] == plain


def many(count: int, *, seed: int = 0) -> tuple[Capture, list[dict[str, Any]]]:
    """Packets of many lengths and the rows they give."""
    rng = np.random.default_rng(seed)
    capture, rows = Capture(), []
    for number in range(count):
        payload = rng.bytes(int(rng.integers(0, 400)))
        src = f"10.0.{number // 256}.{number % 256}"
        capture.add(ethernet(ipv4(src, PAIR[1], payload=payload)), 1_600_000_000 + number // 50)
        rows.append(row(src, PAIR[1], 34 + len(payload), second=1_600_000_000 + number // 50))
    return capture, rows


@pytest.mark.parametrize("chunk_bytes", [1, 100, 5000, 1 << 30])
def test_every_packet_is_read_once_however_a_file_is_cut(tmp_path: Path, chunk_bytes: int) -> None:
    capture, rows = many(300)
    assert read(write(tmp_path, capture.to_bytes()), chunk_bytes=chunk_bytes) == rows


@pytest.mark.parametrize("window", [1 << 9, 1 << 12])
def test_windows_do_not_matter(tmp_path: Path, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afspark.sources.pcap_files._WINDOW", window)
    capture, rows = many(200)
    data = bytearray(capture.to_bytes())
    at = len(capture.header()) + sum(map(len, capture.records[:100]))
    data[at : at + 16] = b"\xff" * 16
    assert read(write(tmp_path, bytes(data)), chunk_bytes=3000) == [*rows[:100], NULLS, *rows[101:]]


@pytest.mark.parametrize("left", [1, 15, 16, 17, 40])
def test_a_file_that_was_cut_off(tmp_path: Path, left: int) -> None:
    capture, rows = many(20)
    whole = capture.to_bytes()
    path = write(tmp_path, whole[: len(whole) - len(capture.records[-1]) + left])
    assert read(path, chunk_bytes=1000) == [*rows[:-1], NULLS]
    with pytest.raises(InputError) as caught:
        read(path, on_bad="stop")
    assert caught.value.path == str(path)
    assert caught.value.position == len(whole) - len(capture.records[-1])


@pytest.mark.parametrize("chunk_bytes", [1, 2000, 1 << 20])
@pytest.mark.parametrize("damage", [b"\xff" * 16, b"\0" * 16, b"\xff" * 900, b"\0" * 900], ids=["1", "0", "1s", "0s"])
def test_damage_in_the_middle_costs_what_it_covers(tmp_path: Path, damage: bytes, chunk_bytes: int) -> None:
    capture, rows = many(200, seed=3)
    data = bytearray(capture.to_bytes())
    ends = len(capture.header()) + np.cumsum([len(record) for record in capture.records])
    at = int(ends[79])
    data[at : at + len(damage)] = damage
    after = int(np.searchsorted(ends, at + len(damage))) + 1
    assert read(write(tmp_path, bytes(data)), chunk_bytes=chunk_bytes) == [*rows[:80], NULLS, *rows[after:]]


def test_garbage_between_two_lengths(tmp_path: Path) -> None:
    capture, rows = many(50)
    records = capture.records
    records[10] = records[10][:8] + (3_000).to_bytes(4, "little") + records[10][12:]
    found = read(write(tmp_path, capture.to_bytes()))
    # The wrong length swallows what follows; then the chain is found again.
    assert found[:10] == rows[:10] and found[-20:] == rows[-20:] and found.count(NULLS) <= 2


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0" * 13, ethernet(ipv4(*PAIR)[:19]), ethernet(ipv6("::1", "::2")[:39]), ethernet(b"\x05" * 40)],
)
def test_packets_that_make_no_sense_are_bad_records(tmp_path: Path, frame: bytes) -> None:
    capture = Capture().add(frame, wire=60).add(ethernet(ipv4(*PAIR)))
    assert read(write(tmp_path, capture.to_bytes())) == [NULLS, row(*PAIR, 34)]


@pytest.mark.parametrize("data", [b"hello", b"\x0a\x0d\x0d\x0a" * 9, b"\x1f\x8b" * 30, Capture().header()[:20]])
def test_files_that_are_no_captures(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    assert read(path) == [NULLS]
    with pytest.raises(InputError) as caught:
        read(path, on_bad="stop")
    assert caught.value.path == str(path)
    with pytest.raises(UsageError):
        PcapFiles(str(tmp_path)).validate()
    write(tmp_path, Capture().add(ethernet(ipv4(*PAIR))).to_bytes(), "b.pcap")
    PcapFiles(str(tmp_path)).validate()


def test_a_link_type_that_is_not_understood(tmp_path: Path) -> None:
    path = write(tmp_path, Capture(link=105).add(b"x").to_bytes())
    with pytest.raises(InputError) as caught:
        read(path, on_bad="stop")
    assert caught.value.link == 105


def test_a_capture_without_packets(tmp_path: Path) -> None:
    assert read(write(tmp_path, Capture().to_bytes())) == []


@given(data=st.binary(max_size=300), final=st.booleans())
def test_any_bytes_are_walked_to_their_end(data: bytes, final: bool) -> None:
    array = np.frombuffer(data, np.uint8)
    starts, bad, done = Chain(big=False, nanoseconds=False).walk(array, final=final)
    assert done == len(data) if final else done <= len(data)
    assert (np.diff(starts) > 0).all() and len(starts) == len(bad)


def test_settings(tmp_path: Path) -> None:
    source = PcapFiles(str(tmp_path), on_bad="stop")
    assert source_from_json(source.to_json()) == source
    for wrong in ({"on_bad": "x"}, {"chunk_bytes": 0}):
        with pytest.raises(UsageError):
            PcapFiles(str(tmp_path), **wrong)  # type: ignore[arg-type]
