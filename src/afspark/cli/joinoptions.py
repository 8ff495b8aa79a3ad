"""Options of ``afspark run join``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afspark.cli import values
from afspark.cli.options import JOIN, CommandOptions, add_common, add_on_bad, add_parser
from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class JoinOptions(CommandOptions):
    """What ``afspark run join`` was asked to do. ``input`` goes with ``other``; None: decided by the input."""

    other: str | None = None
    on: tuple[str, ...] | None = None
    value: str | None = None
    rate: float = 0.1
    overlap: float | None = None
    confidence: float = 0.95


def add_join(algorithms: Any) -> None:
    parser = add_parser(algorithms, JOIN, "estimate how many pairs of two streams agree, from samples")
    group = parser.add_argument_group("input (--input and --with, or --generate)")
    origin = group.add_mutually_exclusive_group(required=True)
    origin.add_argument("--input", metavar="DIR", help="left stream: a file, a folder with files, or a glob")
    origin.add_argument(
        "--generate",
        type=values.size,
        metavar="SIZE",
        help="make two streams of packets of 24 bytes, together of this size, like 500MB; synthetic",
    )
    group.add_argument("--with", dest="other", metavar="DIR", help="right stream")
    group.add_argument("--format", choices=("parquet", "pcap"), help="format of both (default: parquet)")
    group.add_argument(
        "--overlap", type=values.amount, metavar="P", help="share of hosts that generated streams share (default: 0.5)"
    )
    add_on_bad(group)
    group = parser.add_argument_group("join")
    group.add_argument(
        "--on", type=values.names, metavar="A,B", help="columns in which a pair agrees (packets: dst,second)"
    )
    group.add_argument("--value", metavar="C", help="column of the left stream for SUM and AVG (generated: bytes)")
    group.add_argument(
        "--rate", type=values.amount, metavar="P", default=0.1, help="share of items that is sampled (default: 0.1)"
    )
    group.add_argument(
        "--confidence",
        type=values.amount,
        metavar="P",
        default=0.95,
        help="chance that an interval holds the truth (default: 0.95)",
    )
    add_common(parser, JOIN)


def join_options(chosen: dict[str, Any]) -> JoinOptions:
    """UsageError for what does not go together."""
    options = JoinOptions(**chosen)
    if (options.input is None) != (options.other is None):
        raise UsageError("A join of files needs two streams.", remedy="Use --input and --with, or --generate.")
    if options.overlap is not None and options.generate is None:
        raise UsageError("--overlap says how streams are generated.", remedy="Leave it out with --input.")
    if options.input is not None and options.format != "pcap" and options.on is None:
        raise UsageError("A join of files needs --on.", remedy="Name columns that both streams have.")
    return options
