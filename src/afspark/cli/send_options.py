"""The options of ``afspark send``."""

from __future__ import annotations

from argparse import ArgumentTypeError
from dataclasses import dataclass
from functools import partial

from afspark.cli import values
from afspark.cli.option_table import ON_BAD, Command, Group, Option
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


def listen_address(scheme: str, text: str) -> tuple[str, int]:
    """Where to listen; the scheme may stand before it.

    >>> listen_address("udp", "0.0.0.0:2055"), listen_address("udp", "udp://[::1]:514")
    (('0.0.0.0', 2055), ('::1', 514))
    """
    try:
        return split_address(text.removeprefix(f"{scheme}://"))
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from None


def _check(options: SendOptions) -> None:
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


SEND = Command(
    name="send",
    help="push files, standard input or packets to a receiver",
    description="Pushes rows to a receiver and waits until all are acknowledged. Their types are the receiver's.",
    epilog=EXAMPLES,
    options=SendOptions,
    check=_check,
    groups=(
        Group("", (Option("address", "of the receiver: HOST:PORT or [IPV6]:PORT", "ADDRESS"),)),
        Group(
            "input (files, or one of --listen-udp and --listen-tcp)",
            (
                Option("files", "in this order; - is standard input", "FILE", repeated=True),
                Option(
                    "--listen-udp",
                    "take datagrams until Ctrl-C; [::] takes IPv4 and IPv6",
                    "HOST:PORT",
                    partial(listen_address, "udp"),
                ),
                Option(
                    "--listen-tcp",
                    "take lines until Ctrl-C; syslog may count its octets (RFC 6587) instead",
                    "HOST:PORT",
                    partial(listen_address, "tcp"),
                ),
                Option(
                    "--format",
                    "default: by the file's name; syslog for UDP, text for TCP (netflow: 5, 9 and IPFIX)",
                    kind=FORMATS,
                ),
                Option("--no-header", "CSV has the receiver's columns, no line of names", field="header"),
                Option(
                    "--on-bad",
                    "what to do with rows that do not fit: count and skip them, or stop (default: skip)",
                    kind=ON_BAD,
                ),
                Option("--limit", "send no more than this", "ROWS", values.count),
            ),
        ),
        Group(
            "sending",
            (
                Option("--name", "of the producer, for the ledger (default: send)", "NAME"),
                Option("--rate", "send no faster than this", "ROWS/S", values.positive_amount),
                Option("--batch-rows", "rows of a message (default: 65536)", "N", values.count),
                Option(
                    "--unacked",
                    "most rows that may be unacknowledged, if the receiver allows more (0: wait for each message)",
                    "N",
                    values.count_or_zero,
                ),
                Option("--punctuate-column", "number or time, in ascending order, that windows go by", "NAME"),
                Option(
                    "--punctuate-every",
                    "say so when the column reaches a multiple of this (times: seconds)",
                    "N",
                    values.positive_amount,
                ),
                Option("--end", "say at the end that the stream is over"),
                Option("--give-up", "how long to try to reach the receiver (default: 30)", "SECONDS", values.amount),
                Option("--token-file", "file with the token that the receiver expects", "FILE"),
                Option("--tls-ca", "root certificates to trust (PEM); turns TLS on", "FILE"),
            ),
        ),
        Group(
            "output",
            (Option("--quiet", "say nothing but errors"), Option("--debug", "show the traces of errors")),
        ),
    ),
)
