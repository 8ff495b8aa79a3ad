"""Flow records of every version as rows: what exporters sent for real, and what templates can say."""

from __future__ import annotations

import ipaddress
import logging
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from afspark.errors import InputError
from afspark.push.adapters import flowtemplates
from afspark.push.adapters.netflow import FlowCounts, NetFlow
from tests.unit.push import flow_captures
from tests.unit.push.flow_exports import (
    V4,
    V6,
    VARIABLE,
    a_set,
    flow,
    ipfix,
    netflow_5,
    netflow_9,
    specifiers,
    template,
)

SENDER = ("192.0.2.1", 50_000)
FLOWS = pa.schema(
    [
        ("src", pa.string()), ("dst", pa.string()), ("src_port", pa.int32()), ("dst_port", pa.int32()),
        ("protocol", pa.int32()), ("packets", pa.int64()), ("bytes", pa.int64()), ("tcp_flags", pa.int32()),
    ]
)  # fmt: skip
SEEN_4 = [
    ("10.0.0.3", "192.168.1.1", 5353, 53, 17, 1, 58, 0),
    ("10.0.0.4", "192.168.1.1", 0, 0x0800, 1, 1, 48, 0),
    ("10.0.0.1", "10.0.0.2", 1234, 443, 6, 2, 180, 18),
    ("10.0.0.2", "10.0.0.1", 443, 1234, 6, 1, 50, 18),
]
SEEN_6 = [
    ("2001:db8::3", "2001:db8::4", 6000, 53, 17, 1, 88, 0),
    ("2001:db8::5", "2001:db8::6", 0, 0x8000, 58, 1, 48, 0),
    ("2001:db8::1", "2001:db8::2", 4000, 22, 6, 2, 170, 18),
]
SEEN = SEEN_4[:2] + SEEN_6[:2] + SEEN_4[2:] + SEEN_6[2:]
# nfcapd does not keep the type of ICMP for IPv6.
REPLAYED = [(*row[:3], 0, *row[4:]) if row[4] == 58 else row for row in SEEN]


class Collector:
    """A parser that remembers all its rows."""

    def __init__(self, *columns: tuple[str, pa.DataType]) -> None:
        self.now = 0.0
        self.flows = NetFlow(pa.schema(list(columns)) if columns else FLOWS, clock=lambda: self.now)
        self.rows: list[tuple[Any, ...]] = []
        self.bad = 0

    def take(self, *datagrams: bytes, sender: Sequence[Any] = SENDER) -> list[tuple[Any, ...]]:
        rows = self.flows.datagrams([(each, tuple(sender)) for each in datagrams])
        found = [tuple(row.values()) for row in rows.batch.to_pylist()]
        self.rows += found
        self.bad += rows.bad
        return found

    @property
    def counts(self) -> FlowCounts:
        return self.flows.counts


def sources(rows: list[tuple[Any, ...]]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("datagram", "seen", "options"),
    [
        (flow_captures.SOFTFLOWD_5, SEEN_4, 0),
        (flow_captures.SOFTFLOWD_9, SEEN, 1),
        (flow_captures.SOFTFLOWD_IPFIX, SEEN, 1),
        (flow_captures.SOFTFLOWD_IPFIX_MICRO, SEEN, 1),
        (flow_captures.SOFTFLOWD_BIFLOW, [row for row in SEEN if row[0] != "10.0.0.2"], 1),
        (flow_captures.NFREPLAY_9, REPLAYED, 0),
    ],
    ids=["netflow 5", "netflow 9", "ipfix", "ipfix micro", "biflow", "nfreplay"],
)
def test_what_exporters_sent(datagram: bytes, seen: list[tuple[Any, ...]], options: int) -> None:
    collector = Collector()
    assert collector.take(datagram) == seen
    assert collector.bad == 0 and collector.counts == FlowCounts(options=options)


@pytest.mark.parametrize(
    ("datagram", "precise"),
    [
        (flow_captures.SOFTFLOWD_5, 1),
        (flow_captures.SOFTFLOWD_9, 1000),  # its header has whole seconds
        (flow_captures.SOFTFLOWD_IPFIX, 1),
        (flow_captures.SOFTFLOWD_IPFIX_MICRO, 1),
    ],
    ids=["netflow 5", "netflow 9", "ipfix", "ipfix micro"],
)
def test_times_of_all_kinds(datagram: bytes, precise: int) -> None:
    collector = Collector(("src", pa.string()), ("start", pa.int64()), ("end", pa.float64()))
    tcp = next(row for row in collector.take(datagram) if row[0] == "10.0.0.1")
    assert abs(tcp[1] - flow_captures.SEEN) <= precise and abs(tcp[2] - tcp[1] - 500) <= 1


def test_a_time_is_a_timestamp_of_any_unit() -> None:
    kinds = [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC")]
    for kind in kinds:
        collector = Collector(("start", kind))
        message = ipfix(a_set(2, template(256, [(152, 8)])), a_set(256, struct.pack(">Q", 1_700_000_000_123)))
        ((start,),) = collector.take(message)
        seen = start.replace(tzinfo=UTC)
        assert seen.replace(microsecond=0) == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert seen.microsecond == (0 if kind.unit == "s" else 123_000)


def test_an_uptime_without_the_exporters_start_is_no_time() -> None:
    data = a_set(256, struct.pack(">II", 5, 9))
    without = ipfix(a_set(2, template(256, [(22, 4), (21, 4)])), data)
    columns = ("first", pa.int64()), ("start", pa.int64()), ("end", pa.timestamp("ms"))
    collector = Collector(*columns)
    assert collector.take(without) == [(5, None, None)]
    started = struct.pack(">IQ", 1, 1_699_999_999_000)
    options = a_set(3, struct.pack(">HHH", 257, 2, 1), specifiers([(143, 4), (160, 8)])), a_set(257, started)
    ((first, start, end),) = collector.take(ipfix(*options, data))
    assert (first, start) == (5, 1_699_999_999_005)
    assert end.replace(tzinfo=UTC) == datetime.fromtimestamp(1_699_999_999.009, UTC)
    assert collector.counts.options == 1


@pytest.mark.parametrize(("uptime", "first"), [(1000, 1500), (100, 0xFFFF_FFFF - 399)], ids=["younger", "wrapped"])
def test_uptimes_beside_that_of_the_message(uptime: int, first: int) -> None:
    """A packet may be seen while its message is made, and uptimes begin anew after 2^32 milliseconds."""
    collector = Collector(("start", pa.int64()))
    record = a_set(0, template(256, [(22, 4)])), a_set(256, first.to_bytes(4))
    ((start,),) = collector.take(netflow_9(*record, uptime=uptime))
    assert start - 1_700_000_000_000 == (500 if uptime == 1000 else -500)


def test_the_header_and_the_exporter_are_columns() -> None:
    names = ("exporter", "version", "domain", "seconds", "flow_sequence", "uptime", "engine_id", "nanoseconds")
    columns = [(name, pa.string() if name == "exporter" else pa.int64()) for name in names]
    collector = Collector(*columns)
    data = a_set(0, template(256, V4)), a_set(256, flow("10.0.0.1"))
    assert collector.take(netflow_5(1, 7), netflow_9(*data, sequence=8, domain=3, uptime=5)) == [
        ("192.0.2.1", 5, 1, 1_700_000_000, 7, 1000, 1, 5),
        ("192.0.2.1", 9, 3, 1_700_000_000, 8, 5, None, None),
    ]
    assert collector.take(netflow_5(1), sender=("2001:db8::9", 1, 0, 0))[0][0] == "2001:db8::9"
    assert collector.take(netflow_5(1), sender=("::ffff:10.1.2.3", 1, 0, 0))[0][0] == "10.1.2.3"
    assert collector.take(netflow_5(1), sender=("fe80::1%lo", 1, 0, 1))[0][0] == "fe80::1"


def test_addresses_as_numbers_bytes_and_text() -> None:
    messages = [
        netflow_9(a_set(0, template(256, V4)), a_set(256, flow("10.0.0.1"))),
        netflow_9(a_set(0, template(257, V6)), a_set(257, flow("2001:db8::1"))),
    ]
    as_bytes = Collector(("src", pa.binary(16)), ("nexthop", pa.binary()))
    six = ipaddress.ip_address("2001:db8::1").packed
    assert as_bytes.take(*messages) == [(bytes(10) + b"\xff\xff\x0a\0\0\x01", None), (six, None)]
    as_numbers = Collector(("src", pa.int64()), ("nexthop", pa.int64()))
    assert as_numbers.take(*messages) == [(0x0A000001, None)]
    assert as_numbers.bad == 1, "an IPv6 address is no number, and is not made one in silence"
    small = Collector(("src", pa.int32()))
    assert small.take(netflow_9(a_set(0, template(256, V4)), a_set(256, flow("200.0.0.1")))) == [] and small.bad == 1
    with pytest.raises(InputError):
        Collector(("value", pa.string()))


def test_an_address_that_only_some_records_have() -> None:
    collector = Collector(("src", pa.string()), ("nexthop", pa.string()))
    without = netflow_9(a_set(0, template(256, V4)), a_set(256, flow("10.0.0.9")))
    assert collector.take(without, netflow_5(1)) == [("10.0.0.9", None), ("10.0.0.1", "0.0.0.0")]


def test_both_kinds_of_address_in_one_record() -> None:
    fields = [(8, 4), (27, 16)]
    four, six = ipaddress.ip_address("10.0.0.1").packed, ipaddress.ip_address("2001:db8::1").packed
    collector = Collector(("src", pa.string()))
    data = a_set(256, four + bytes(16), bytes(4) + six)
    assert collector.take(netflow_9(a_set(0, template(256, fields)), data)) == [("10.0.0.1",), ("2001:db8::1",)]


@pytest.mark.parametrize("length", range(1, 9))
def test_counters_of_any_width(length: int) -> None:
    largest = (1 << 8 * length) - 1
    collector = Collector(("bytes", pa.uint64()), ("packets", pa.uint64()))
    fields = [(1, length), (2, length)]
    data = a_set(256, largest.to_bytes(length), (1).to_bytes(length), padding=3 if length > 2 else 0)
    assert collector.take(netflow_9(a_set(0, template(256, fields)), data)) == [(largest, 1)]


def test_fields_of_variable_length_and_of_enterprises() -> None:
    fields = [(82, VARIABLE), (8, 4), (1, 4, 29_305), (83, VARIABLE, 9), (1, 2)]

    def record(name: bytes, src: str, more: bytes, octets: int) -> bytes:
        short = bytes([len(name)]) + name
        long = b"\xff" + len(more).to_bytes(2) + more
        return short + ipaddress.ip_address(src).packed + b"\xee" * 4 + long + octets.to_bytes(2)

    records = [record(b"eth0", "10.0.0.1", b"x" * 300, 7), record(b"", "10.0.0.2", b"", 8)]
    collector = Collector(("src", pa.string()), ("bytes", pa.int64()))
    message = ipfix(a_set(2, template(256, fields)), a_set(256, *records, padding=3))
    assert collector.take(message) == [("10.0.0.1", 7), ("10.0.0.2", 8)]
    assert collector.counts == FlowCounts()
    assert collector.take(ipfix(a_set(256, records[0][:-1]), sequence=2)) == [] and collector.counts.malformed == 1


def test_several_templates_keep_the_order_of_arrival() -> None:
    collector = Collector()
    templates = a_set(0, template(256, V4), template(300, V6), padding=2)
    mixed = a_set(256, flow("10.0.0.1")), a_set(300, flow("::2")), a_set(256, flow("10.0.0.3"), flow("10.0.0.4"))
    rows = collector.take(netflow_9(templates, *mixed), netflow_5(1), netflow_9(a_set(300, flow("::5")), sequence=1))
    assert sources(rows) == ["10.0.0.1", "::2", "10.0.0.3", "10.0.0.4", "10.0.0.1", "::5"]


def test_data_before_its_template_is_counted() -> None:
    collector = Collector()
    data = a_set(256, flow("10.0.0.1"))
    assert collector.take(netflow_9(data), netflow_9(data, sequence=1)) == []
    assert collector.counts == FlowCounts(sets_without_template=2) and collector.bad == 0
    rows = collector.take(netflow_9(data, a_set(0, template(256, V4)), data, sequence=2))
    assert sources(rows) == ["10.0.0.1"] and collector.counts.sets_without_template == 3


def test_templates_belong_to_an_exporter_and_its_domain() -> None:
    collector = Collector()
    data = a_set(256, flow("10.0.0.1"))
    collector.take(netflow_9(a_set(0, template(256, V4)), domain=1))
    assert collector.take(netflow_9(data, domain=1, sequence=1))
    assert collector.take(netflow_9(data, domain=1, sequence=2), sender=("192.0.2.1", 50_001)), "another port"
    assert not collector.take(netflow_9(data, domain=2))
    assert not collector.take(netflow_9(data, domain=1), sender=("192.0.2.2", 50_000))
    collector.take(ipfix(a_set(2, template(256, V4))))
    assert collector.take(ipfix(data))
    assert not collector.take(ipfix(data), sender=("192.0.2.1", 50_001)), "another session"
    assert collector.counts.sets_without_template == 3


def test_a_template_that_changes() -> None:
    collector = Collector(("src", pa.string()), ("bytes", pa.int64()))
    collector.take(netflow_9(a_set(0, template(256, [(8, 4), (1, 4)]))))
    old = a_set(256, ipaddress.ip_address("10.0.0.1").packed, (5).to_bytes(4))
    new = a_set(256, (6).to_bytes(8), ipaddress.ip_address("10.0.0.2").packed)
    change = a_set(0, template(256, [(1, 8), (8, 4)]))
    assert collector.take(netflow_9(old, change, new)) == [("10.0.0.1", 5), ("10.0.0.2", 6)]


def test_a_template_that_is_not_repeated_expires() -> None:
    collector = Collector()
    repeated, once = a_set(0, template(256, V4)), a_set(0, template(257, V4))
    collector.take(netflow_9(repeated, once))
    collector.now = 0.6 * flowtemplates.TEMPLATE_SECONDS
    collector.take(netflow_9(repeated, sequence=1))
    collector.now = 1.2 * flowtemplates.TEMPLATE_SECONDS
    assert len(collector.take(netflow_9(a_set(256, flow("10.0.0.1")), a_set(257, flow("10.0.0.1")), sequence=2))) == 1
    assert collector.counts.sets_without_template == 1


def test_memory_for_templates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowtemplates, "MOST_EXPORTERS", 2)
    monkeypatch.setattr(flowtemplates, "MOST_TEMPLATES_EACH", 3)
    monkeypatch.setattr(flowtemplates, "MOST_TEMPLATES", 4)
    collector = Collector()
    for domain in (1, 2, 1, 3):
        collector.take(netflow_9(a_set(0, template(256, V4)), domain=domain))
    data = a_set(256, flow("10.0.0.1"))
    assert collector.take(netflow_9(data, domain=1)) and collector.take(netflow_9(data, domain=3))
    assert not collector.take(netflow_9(data, domain=2)), "silent for longest"
    many = [template(number, V4) for number in range(256, 260)]
    collector.take(netflow_9(a_set(0, *many), domain=3))
    kept = [bool(collector.take(netflow_9(a_set(number, flow("10.0.0.1")), domain=3))) for number in range(256, 260)]
    assert kept == [False, True, True, True]
    collector.take(netflow_9(a_set(0, many[0]), domain=4))
    last = netflow_9(a_set(259, flow("10.0.0.1")), domain=3)
    assert collector.take(last), "four in all"
    collector.take(netflow_9(a_set(0, *many[:2]), domain=4))
    assert not collector.take(last), "five would be too many"


@pytest.mark.parametrize("version", [1, 7, 8, 11, 0x1603])
def test_another_version_is_refused_by_name(version: int, caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    datagram = version.to_bytes(2) + bytes(100)
    with caplog.at_level(logging.WARNING, "afspark"):
        rows = collector.flows.datagrams([(datagram, SENDER), (netflow_5(1), SENDER), (datagram, SENDER)])
    assert rows.batch.num_rows == 1 and rows.bad == 2 and f"version {version};" in rows.example
    assert collector.counts == FlowCounts(unknown_version=2)
    (said,) = caplog.messages
    assert "192.0.2.1" in said and f"version {version}" in said and "NetFlow 9" in said


def test_sflow_is_told_from_netflow(caplog: pytest.LogCaptureFixture) -> None:
    collector = Collector()
    collector.take(struct.pack(">II", 5, 1) + bytes(40))
    assert collector.counts.unknown_version == 1 and "sFlow 5" in caplog.text


GOOD = a_set(2, template(256, V4)), a_set(256, flow("10.0.0.1"))


@pytest.mark.parametrize(
    "datagram",
    [
        netflow_5(3)[:-1],
        netflow_5(0),
        netflow_5(31),
        netflow_9()[:19],
        ipfix()[:15],
        ipfix(*GOOD)[:-1],
        ipfix(*GOOD) + b"x",
        netflow_9(struct.pack(">HH", 256, 3)),
        netflow_9(struct.pack(">HH", 256, 0)),
        netflow_9(struct.pack(">HH", 256, 9), b"1234"),
        netflow_9(*GOOD, b"\0\0\1"),
        netflow_9(a_set(0, template(255, V4))),
        netflow_9(a_set(0, template(256, []))),
        netflow_9(a_set(0, template(256, V4)[:-1])),
        netflow_9(a_set(0, template(256, [(8, 5)]))),
        netflow_9(a_set(0, template(256, [(1, 9)]))),
        netflow_9(a_set(0, template(256, [(1, 0)]))),
        netflow_9(a_set(0, template(256, [(999, 0)]))),
        netflow_9(a_set(0, template(256, [(82, VARIABLE), (8, 4)]))),
        netflow_9(a_set(0, template(256, [(999, 1)] * 513))),
        ipfix(a_set(2, template(256, [(82, VARIABLE)]))),
        ipfix(a_set(2, template(256, [(8, 4), (1, 4, 9)])[:-1])),
        ipfix(a_set(3, struct.pack(">HHH", 256, 2, 1), specifiers([(143, 4)]))),
        ipfix(a_set(2, template(256, V4)), a_set(256)),
        ipfix(a_set(2, template(256, V4)), a_set(256, flow("10.0.0.1")[:-1])),
    ],
)
def test_malformed_datagrams_are_counted_and_harm_nobody(datagram: bytes) -> None:
    collector = Collector()
    fine = ipfix(*GOOD, domain=7)
    assert sources(collector.take(fine, datagram, ipfix(GOOD[1], domain=7, sequence=1))) == ["10.0.0.1"] * 2
    assert collector.counts == FlowCounts(malformed=1) and collector.bad == 1


def test_a_malformed_message_gives_no_rows_at_all() -> None:
    collector = Collector()
    assert collector.take(netflow_9(a_set(0, template(256, V4)), a_set(256, flow("10.0.0.1")), a_set(256))) == []
    assert collector.counts == FlowCounts(malformed=1)


def test_reserved_sets_are_passed_over_and_counted() -> None:
    collector = Collector()
    assert collector.take(ipfix(a_set(77, b"what"), *GOOD)) and collector.counts == FlowCounts(reserved=1)


def test_options_of_netflow_9_are_no_flows() -> None:
    # Scope "system" has the number of the octets' element, and is none.
    options = a_set(1, struct.pack(">HHH", 256, 4, 8), specifiers([(1, 0), (34, 8), (8, 4)]), padding=2)
    collector = Collector()
    assert collector.take(netflow_9(options, a_set(256, bytes(24)))) == []
    assert collector.counts == FlowCounts(options=2)


def test_losses_by_sequence_number() -> None:
    collector = Collector()
    for start in (0, 2, 4, 10, 12):  # two datagrams of two flows are missing
        collector.take(netflow_5(2, start))
    assert collector.counts == FlowCounts(lost_flows=4)
    for number in (5, 6, 9, 8):
        collector.take(netflow_9(sequence=number))
    assert collector.counts == FlowCounts(lost_flows=4, lost_datagrams=1)
    collector.take(netflow_9(sequence=0xFFFF_FFFF, domain=1), netflow_9(sequence=1, domain=1))
    assert collector.counts.lost_datagrams == 2, "numbers begin anew after 2^32"


@pytest.mark.parametrize("including", [False, True], ids=["before the message", "up to its end"])
def test_losses_of_ipfix_whichever_way_it_counts(including: bool) -> None:
    """RFC 7011 numbers a message by the records before it; softflowd by those up to its end, without options."""
    collector = Collector()
    option = a_set(3, struct.pack(">HHH", 300, 1, 1), specifiers([(143, 4)])), a_set(300, bytes(4))
    collector.take(ipfix(a_set(2, template(256, V4))))
    sent = 0
    for number, count in enumerate([3, 9, 1, 30, 30, 7, 2, 5]):
        extra = option if number % 3 == 0 else ()
        data = a_set(256, *[flow("10.0.0.1")] * count)
        sequence = sent + (count if including else 0)
        sent += count + (0 if including else len(extra) // 2)
        if number != 4:
            collector.take(ipfix(*extra, data, sequence=sequence))
    assert collector.counts == FlowCounts(lost_flows=30, options=3)


def test_an_exporter_that_begins_anew_has_lost_nothing() -> None:
    collector = Collector()
    for start in (100_000, 100_002, 0, 2, 4, 0x8000_0000):
        collector.take(netflow_5(2, start))
    assert collector.counts == FlowCounts()


def test_many_at_once_are_as_one_by_one() -> None:
    datagrams = [
        flow_captures.SOFTFLOWD_9,
        netflow_5(30),
        flow_captures.SOFTFLOWD_IPFIX,
        b"rubbish",
        flow_captures.NFREPLAY_9,
        flow_captures.SOFTFLOWD_BIFLOW,
    ] * 3
    columns = [*zip(FLOWS.names, FLOWS.types, strict=True), ("start", pa.int64()), ("end", pa.timestamp("us"))]
    together, alone = Collector(*columns), Collector(*columns)
    together.take(*datagrams)
    for datagram in datagrams:
        alone.take(datagram)
    assert together.rows == alone.rows and together.counts == alone.counts
