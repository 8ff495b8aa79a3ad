"""Where the rows of ``afspark send`` come from: files, standard input, and sockets that it listens at."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from afspark.cli.send_options import SendOptions
from afspark.errors import InputError
from afspark.push.adapters.datagrams import Datagram, Datagrams
from afspark.push.adapters.framing import LineFrames, SyslogFrames
from afspark.push.adapters.netflow import NetFlow
from afspark.push.adapters.syslog import Syslog
from afspark.push.adapters.tcplines import TcpLines
from afspark.push.producer.file_input import Input, guess_format, line_parser
from afspark.push.producer.fitting import Rows
from afspark.push.producer.line_formats import LineParser
from afspark.push.wire.addresses import join_address


def nothing_left_out() -> Mapping[str, int]:
    """What a source says that leaves nothing out."""
    return {}


@dataclass(frozen=True)
class SendSource:
    """Where rows come from. ``stop`` ends it in order; ``left_out`` counts what did not become rows, by what it was,
    while it runs; ``notes`` are for the summary."""

    rows: Callable[[pa.Schema], Iterator[Rows]]
    bytes: int = 0
    stop: Callable[[], None] = lambda: None
    left_out: Callable[[], Mapping[str, int]] = nothing_left_out
    notes: Callable[[], list[str]] = list


def counted(counters: Mapping[str, int]) -> list[str]:
    """Counters that are not zero, in words.

    >>> counted({"bad": 0, "malformed": 1200})
    ['1,200 malformed']
    """
    return [f"{count:,} {what}" for what, count in counters.items() if count]


def source_of(options: SendOptions, stack: contextlib.ExitStack) -> SendSource:
    """The source that the options name; ``stack`` closes it."""
    if options.listen_udp is not None:
        return _udp(options, stack.enter_context(Datagrams(options.listen_udp)))
    if options.listen_tcp is not None:
        framing = SyslogFrames if options.format == "syslog" else LineFrames
        return _tcp(options, stack.enter_context(TcpLines(options.listen_tcp, framing=framing)))
    if options.files.count("-") > 1:
        raise InputError("Standard input can be read once.", path="-")
    inputs = [
        Input(path=path, format=options.format or guess_format(path), header=options.header) for path in options.files
    ]
    known = 0 if "-" in options.files else sum(given.bytes for given in inputs)
    return SendSource(lambda schema: (rows for given in inputs for rows in given.rows(schema)), known)


def _udp(options: SendOptions, datagrams: Datagrams) -> SendSource:
    _say(options, "udp", datagrams.address)
    flows: list[NetFlow] = []

    def rows(schema: pa.Schema) -> Iterator[Rows]:
        if options.format == "netflow":
            flows.append(NetFlow(schema))
            return map(flows[0].datagrams, datagrams)
        if options.format in {None, "syslog"}:
            return map(Syslog(schema).datagrams, map(_contents, datagrams))
        parse: LineParser = line_parser(options.format or "text", schema)
        return (parse(b"".join(each.rstrip(b"\r\n") + b"\n" for each in _contents(many))) for many in datagrams)

    def left_out() -> Mapping[str, int]:
        return _flows_left_out(flows[0]) if flows else {}

    def notes() -> list[str]:
        dropped = datagrams.dropped
        kernel = f"The kernel dropped {'an unknown number of' if dropped is None else f'{dropped:,}'} datagrams."
        return [*_left_out_text(left_out()), kernel]

    return SendSource(rows, stop=datagrams.stop, left_out=left_out, notes=notes)


def _tcp(options: SendOptions, lines: TcpLines) -> SendSource:
    _say(options, "tcp", lines.address)

    def rows(schema: pa.Schema) -> Iterator[Rows]:
        parse = Syslog(schema) if options.format == "syslog" else line_parser(options.format or "text", schema)
        return map(parse, lines)

    def left_out() -> Mapping[str, int]:
        return {"too long": lines.counts.too_long, "malformed frames": lines.counts.malformed}

    return SendSource(rows, stop=lines.stop, left_out=left_out, notes=lambda: _left_out_text(left_out()))


def _contents(datagrams: list[Datagram]) -> list[bytes]:
    return [data for data, _ in datagrams]


def _flows_left_out(flows: NetFlow) -> Mapping[str, int]:
    counts = flows.counts
    return {
        "malformed datagrams": counts.malformed,
        "of unknown versions": counts.unknown_version,
        "sets without template": counts.sets_without_template,
        "flows lost by sequence": counts.lost_flows,
        "datagrams lost by sequence": counts.lost_datagrams,
        "option records": counts.options,
        "reserved sets": counts.reserved,
    }


#: What each counter counts, one of it and many, and why it did not become rows.
_LEFT_OUT = {
    "malformed datagrams": ("datagram", "datagrams", "damaged, or cut short"),
    "of unknown versions": ("datagram", "datagrams", "neither NetFlow 5, NetFlow 9 nor IPFIX"),
    "sets without template": (
        "set of flows",
        "sets of flows",
        "no template had come for them; exporters send theirs again every few minutes",
    ),
    "flows lost by sequence": ("flow", "flows", "never arrived, by the exporters' sequence numbers"),
    "datagrams lost by sequence": ("datagram", "datagrams", "never arrived, by the exporters' sequence numbers"),
    "option records": ("record", "records", "about the exporter itself, not about a flow"),
    "reserved sets": ("set", "sets", "of a kind that no standard knows"),
    "too long": ("message", "messages", "longer than a message may be"),
    "malformed frames": ("frame", "frames", "its length is wrong, or the connection ended in it (RFC 6587)"),
}


def _left_out_text(counters: Mapping[str, int]) -> list[str]:
    """A line for each kind of thing that did not become rows: how many, and why.

    >>> _left_out_text({"malformed datagrams": 1, "option records": 0, "reserved sets": 2000})
    ['Left out 1 datagram: damaged, or cut short.', 'Left out 2,000 sets: of a kind that no standard knows.']
    """
    found = [(count, *_LEFT_OUT[what]) for what, count in counters.items() if count]
    lines = [f"Left out {count:,} {one if count == 1 else many}: {why}." for count, one, many, why in found]
    return lines or (["Left out nothing."] if counters else [])


def _say(options: SendOptions, kind: str, address: tuple[str, int]) -> None:
    if not options.quiet:
        print(f"Listening at {kind}://{join_address(*address)} (Ctrl-C ends)", file=sys.stderr, flush=True)
