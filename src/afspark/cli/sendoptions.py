"""The options of ``afspark send``."""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from dataclasses import dataclass
from functools import partial
from typing import Any

from afspark.cli import values
from afspark.errors import UsageError
from afspark.push.wire.addresses import split_address

STANDARD_INPUT = "-"
FILE_FORMATS = ("csv", "jsonl", "parquet", "arrow", "text")
UDP_FORMATS = ("syslog", "netflow", "text", "jsonl", "csv")
TCP_FORMATS = ("text", "jsonl", "csv", "syslog")
FORMATS = tuple(dict.fromkeys(FILE_FORMATS + UDP_FORMATS))

EXAMPLES = """\
examples:
  afspark send localhost:7000 flows.parquet --end
  tail -f access.log | afspark send localhost:7000 - --format jsonl
  afspark send localhost:7000 flows.csv.gz --rate 100000 --unacked 10000
  afspark send host:7000 flows.csv --token-file token --tls-ca ca.pem
  afspark send localhost:7000 --listen-udp 0.0.0.0:2055 --format netflow
  afspark send [::1]:7000 --listen-tcp [::]:5514 --format syslog
"""


@dataclass(frozen=True, kw_only=True)
class SendOptions:
    """What ``afspark send`` was asked to do. Exactly one of ``files``, ``listen_udp``, ``listen_tcp`` is given."""

    address: str
    files: tuple[str, ...] = ()
    listen_udp: tuple[str, int] | None = None
    listen_tcp: tuple[str, int] | None = None
    format: str | None = None
    header: bool = True
    on_bad: str = "skip"
    limit: int | None = None
    name: str = "send"
    rate: float | None = None
    batch_rows: int = 65_536
    unacked: int | None = None
    punctuate_column: str | None = None
    punctuate_every: float | None = None
    end: bool = False
    give_up: float = 30.0
    token_file: str | None = None
    tls_ca: str | None = None
    quiet: bool = False
    debug: bool = False


def add_send(commands: Any) -> None:
    """Makes the command known to the parser."""
    parser = commands.add_parser(
        "send",
        help="push files, standard input or packets to a receiver",
        description="Pushes rows to a receiver and waits until all are acknowledged. Their types are the receiver's.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", metavar="ADDRESS", help="of the receiver: HOST:PORT or [IPV6]:PORT")
    group = parser.add_argument_group("input (files, or one of --listen-udp and --listen-tcp)")
    group.add_argument("files", metavar="FILE", nargs="*", help="in this order; - is standard input")
    group.add_argument(
        "--listen-udp",
        type=partial(listen_address, "udp"),
        metavar="HOST:PORT",
        help="take datagrams until Ctrl-C; [::] takes IPv4 and IPv6",
    )
    group.add_argument(
        "--listen-tcp",
        type=partial(listen_address, "tcp"),
        metavar="HOST:PORT",
        help="take lines until Ctrl-C; syslog may count its octets (RFC 6587) instead",
    )
    group.add_argument(
        "--format",
        choices=FORMATS,
        help="default: by the file's name; syslog for UDP, text for TCP (netflow: 5, 9 and IPFIX)",
    )
    group.add_argument(
        "--no-header", dest="header", action="store_false", help="CSV has the receiver's columns, no line of names"
    )
    group.add_argument(
        "--on-bad",
        choices=("skip", "stop"),
        default="skip",
        help="what to do with rows that do not fit: count and skip them, or stop (default: skip)",
    )
    group.add_argument("--limit", type=values.count, metavar="ROWS", help="send no more than this")
    group = parser.add_argument_group("sending")
    group.add_argument("--name", metavar="NAME", default="send", help="of the producer, for the ledger (default: send)")
    group.add_argument("--rate", type=values.positive_amount, metavar="ROWS/S", help="send no faster than this")
    group.add_argument(
        "--batch-rows", type=values.count, metavar="N", default=65_536, help="rows of a message (default: 65536)"
    )
    group.add_argument(
        "--unacked",
        type=values.count_or_zero,
        metavar="N",
        help="most rows that may be unacknowledged, if the receiver allows more (0: wait for each message)",
    )
    group.add_argument(
        "--punctuate-column", metavar="NAME", help="number or time, in ascending order, that windows go by"
    )
    group.add_argument(
        "--punctuate-every",
        type=values.positive_amount,
        metavar="N",
        help="say so when the column reaches a multiple of this (times: seconds)",
    )
    group.add_argument("--end", action="store_true", help="say at the end that the stream is over")
    group.add_argument(
        "--give-up",
        type=values.amount,
        metavar="SECONDS",
        default=30.0,
        help="how long to try to reach the receiver (default: 30)",
    )
    group.add_argument("--token-file", metavar="FILE", help="file with the token that the receiver expects")
    group.add_argument("--tls-ca", metavar="FILE", help="root certificates to trust (PEM); turns TLS on")
    group = parser.add_argument_group("output")
    group.add_argument("--quiet", action="store_true", help="say nothing but errors")
    group.add_argument("--debug", action="store_true", help="show the traces of errors")


def listen_address(scheme: str, text: str) -> tuple[str, int]:
    """Where to listen; the scheme may stand before it.

    >>> listen_address("udp", "0.0.0.0:2055"), listen_address("udp", "udp://[::1]:514")
    (('0.0.0.0', 2055), ('::1', 514))
    """
    try:
        return split_address(text.removeprefix(f"{scheme}://"))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from None


def send_options(chosen: dict[str, Any]) -> SendOptions:
    """The options, or a UsageError if they do not go together."""
    options = SendOptions(**(chosen | {"files": tuple(chosen["files"])}))
    given = [bool(options.files), options.listen_udp is not None, options.listen_tcp is not None]
    if sum(given) != 1:
        raise UsageError(
            "Give files, --listen-udp or --listen-tcp" + (", not several of them." if any(given) else "."),
            remedy="Use - for standard input.",
        )
    listens = "--listen-udp" if options.listen_udp else "--listen-tcp" if options.listen_tcp else "files"
    allowed = {"--listen-udp": UDP_FORMATS, "--listen-tcp": TCP_FORMATS, "files": FILE_FORMATS}[listens]
    if options.format is not None and options.format not in allowed:
        raise UsageError(
            f"--format {options.format} does not go with {listens}.", remedy=f"Use one of {', '.join(allowed)}."
        )
    if (options.punctuate_column is None) != (options.punctuate_every is None):
        raise UsageError("--punctuate-column and --punctuate-every go together.", remedy="Give both or neither.")
    return options
