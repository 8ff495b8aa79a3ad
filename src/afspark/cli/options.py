"""Every option of every command, and the frozen values they become."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from afspark._version import __version__
from afspark.cli import values
from afspark.cli.benchoptions import BenchOptions, add_bench, bench_options
from afspark.cli.sendoptions import STANDARD_INPUT, SendOptions, add_send, send_options
from afspark.errors import UsageError

WORDCOUNT, HEAVY_HITTERS, GREP, JOIN, REGRESSION = "wordcount", "heavy-hitters", "grep", "join", "regression"
DEFAULT_BATCH_BYTES = 40_000_000
DEFAULT_THETA = {WORDCOUNT: 10_000, HEAVY_HITTERS: 100_000, GREP: 10_000, JOIN: 10_000, REGRESSION: 10}

RUN_EXAMPLES = """\
examples:
  afspark run wordcount --input books/ --lower --top 20
  afspark run wordcount --generate 1GB --tolerance approximate --theta 10000 --kill 4 --verify
  afspark run heavy-hitters --generate 500MB --json run.json
  afspark run heavy-hitters --input flows/ --keys src,dst --weight bytes --threshold 1e9 --output heavy/
  afspark run heavy-hitters --input captures/ --format pcap --keys dst --weight bytes --threshold 1e7
  afspark run grep whale --input books/ --output found/
  afspark run grep "colou?r$" --regex --ignore-case --generate 200MB --kill 2 --verify
  afspark run join --generate 500MB --rate 0.1 --kill 2 --verify
  afspark run join --input monday.pcap --with tuesday.pcap --format pcap --on dst,second --value bytes
  afspark run regression --generate clicks --rows 2000000 --kill 4 --verify
  afspark run regression --input adult.csv --label income --positive ">50K" --numeric age --categorical job,sex
"""


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """What ``afspark run`` was asked to do. Exactly one of ``input`` and ``generate`` is given.

    Fields without meaning for the algorithm keep their defaults. None where a default depends on the rest.
    """

    algorithm: str
    input: str | None = None
    generate: int | None = None
    format: str | None = None
    lower: bool = False
    column: str = "value"
    keys: tuple[str, ...] | None = None
    weight: str | None = None
    threshold: float | None = None
    rows: int = 4
    columns: int = 8000
    on_bad: str = "skip"
    top: int = 10
    workers: int = 2
    tolerance: str = "approximate"
    theta: float | None = None
    items: float = 0
    batch_size: int | None = None
    kill: int = 0
    seed: int = 1
    verify: bool = False
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    checkpoint: str | None = None
    takeover: bool = False
    output: str | None = None
    json: str | None = None
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """What ``afspark demo`` was asked to do."""

    size: int | None = None
    out: str = "out"
    failures: int = 4
    seed: int = 1
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """What ``afspark inspect`` was asked to show."""

    checkpoint: str
    operator: str | None = None
    verify: bool = False
    segments: str | None = None
    json: str | None = None
    cells: int = 0
    bad: bool = False
    debug: bool = False


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}.", remedy=f"See {self.prog} --help.")


def parse(argv: list[str] | None) -> CommandOptions | DemoOptions | InspectOptions | SendOptions | BenchOptions:
    """The options in ``argv`` (None: of this process). UsageError if they make no sense."""
    parser = build_parser()
    namespace, rest = parser.parse_known_args(argv)
    chosen = vars(namespace)
    command = chosen.pop("command")
    if command == "send":
        # argparse takes all files at the first place where some could stand: those behind an option are left over.
        files = [text for text in rest if text == STANDARD_INPUT or not text.startswith("-")]
        chosen["files"] += files
        rest = [text for text in rest if text not in files]
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if command == "inspect":
        return InspectOptions(**chosen)
    if command == "send":
        return send_options(chosen)
    if command == "bench":
        return bench_options(chosen)
    chosen["conf"] = tuple(chosen["conf"])
    if command == "demo":
        return DemoOptions(**chosen)
    return _checked(_ALGORITHMS[chosen["algorithm"]].options(chosen))


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="afspark",
        description="Streaming on Spark with fault tolerance that costs what it is worth: "
        "say how much error failures may cause, pay for no more.",
    )
    parser.add_argument("--version", action="version", version=f"afspark {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    run = commands.add_parser(
        "run",
        help="run an algorithm over files or generated input",
        description="Runs an algorithm over all input there is, and shows what it found and what it cost.",
        epilog=RUN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    algorithms = run.add_subparsers(dest="algorithm", metavar="ALGORITHM", required=True, parser_class=Parser)
    for algorithm in _ALGORITHMS.values():
        algorithm.add(algorithms)
    _add_demo(commands)
    _add_inspect(commands)
    add_send(commands)
    add_bench(commands)
    return parser


def _add_wordcount(algorithms: Any) -> None:
    parser = _algorithm(algorithms, WORDCOUNT, "count how often each word occurs", "bytes of text")
    group = parser.add_argument_group("words")
    group.add_argument("--lower", action="store_true", help="fold ASCII capitals")
    group.add_argument("--column", metavar="NAME", default="value", help="text column of Parquet (default: value)")
    add_common(parser, WORDCOUNT)


def _add_heavy_hitters(algorithms: Any) -> None:
    parser = _algorithm(algorithms, HEAVY_HITTERS, "find keys with a large total weight", "packets of 24 bytes")
    group = parser.add_argument_group("heavy hitters")
    group.add_argument(
        "--keys", type=values.names, metavar="A,B", help="columns that make up a key (generated packets: src,dst)"
    )
    group.add_argument("--weight", metavar="C", help="column that is summed (generated packets: bytes)")
    group.add_argument(
        "--threshold",
        type=values.positive_amount,
        metavar="N",
        help="total weight from which a key is heavy (generated packets: 1/500 of all traffic)",
    )
    group.add_argument("--rows", type=values.count, metavar="N", default=4, help="rows of the sketch (default: 4)")
    group.add_argument(
        "--columns", type=values.count, metavar="N", default=8000, help="counters in a row (default: 8000)"
    )
    add_on_bad(group)
    add_common(parser, HEAVY_HITTERS)


def _plain_options(chosen: dict[str, Any]) -> CommandOptions:
    return CommandOptions(**chosen)


@dataclass(frozen=True)
class Algorithm:
    """A name behind ``afspark run``: adds its command, and makes options of what was chosen."""

    add: Callable[[Any], None]
    options: Callable[[dict[str, Any]], CommandOptions] = _plain_options


def _elsewhere(name: str) -> Algorithm:
    """An algorithm whose options are in a module of their own, which imports this one: ``<name>options``."""

    def call(function: str, argument: Any) -> Any:
        return getattr(import_module(f"afspark.cli.{name}options"), function)(argument)

    return Algorithm(partial(call, f"add_{name}"), partial(call, f"{name}_options"))


_ALGORITHMS = {
    WORDCOUNT: Algorithm(_add_wordcount),
    HEAVY_HITTERS: Algorithm(_add_heavy_hitters),
    GREP: _elsewhere(GREP),
    JOIN: _elsewhere(JOIN),
    REGRESSION: _elsewhere(REGRESSION),
}


def _algorithm(algorithms: Any, name: str, purpose: str, generated: str) -> argparse.ArgumentParser:
    parser = add_parser(algorithms, name, purpose)
    formats = ("text", "parquet") if name == WORDCOUNT else ("text", "parquet", "pcap")
    group = parser.add_argument_group("input (one of the first two)")
    origin = group.add_mutually_exclusive_group(required=True)
    origin.add_argument("--input", metavar="DIR", help="a file, a folder with files, or a glob")
    origin.add_argument(
        "--generate", type=values.size, metavar="SIZE", help=f"make {generated} of this size, like 500MB or 2GB"
    )
    default = "text" if name == WORDCOUNT else "parquet"
    group.add_argument("--format", choices=formats, help=f"format of --input (default: {default})")
    return parser


def add_parser(algorithms: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    """A command for an algorithm, without options."""
    examples = [line for line in RUN_EXAMPLES.splitlines() if f"run {name}" in line]
    parser: argparse.ArgumentParser = algorithms.add_parser(
        name,
        help=purpose,
        description=f"{purpose[:1].upper()}{purpose[1:]}.",
        epilog="\n".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_on_bad(group: Any) -> None:
    group.add_argument(
        "--on-bad",
        choices=("skip", "stop"),
        default="skip",
        help="rows with missing or unparsable values: count and skip them, or stop (default: skip)",
    )


def add_common(parser: argparse.ArgumentParser, algorithm: str) -> None:
    group = parser.add_argument_group("fault tolerance")
    group.add_argument(
        "--tolerance",
        choices=("none", "approximate", "minibatch", "upstream"),
        default="approximate",
        help="none: no backups; approximate: error of at most --theta; minibatch: exact; "
        "upstream: exact, and pushed items stay with their sender until then (default: approximate)",
    )
    theta = DEFAULT_THETA[algorithm]
    group.add_argument(
        "--theta",
        type=values.amount,
        metavar="N",
        help=f"error that all failures together may cause with --tolerance approximate (default: {theta})",
    )
    group.add_argument(
        "--checkpoint", metavar="DIR", help="where backups go and a later run goes on (default: temporary)"
    )
    group.add_argument(
        "--takeover", action="store_true", help="go on with a checkpoint that another run uses; that one has to stop"
    )
    group.add_argument(
        "--kill", type=values.count_or_zero, metavar="K", default=0, help="let K system failures strike (default: 0)"
    )
    group = parser.add_argument_group("run")
    group.add_argument("--workers", type=values.count, metavar="N", default=2, help="workers with state (default: 2)")
    group.add_argument(
        "--batch-size",
        type=values.size,
        metavar="SIZE",
        help="input of one batch (default: 40MB; with --kill K less, for at least 2K+2 batches)",
    )
    group.add_argument("--seed", type=values.seed, metavar="N", default=1, help="of input and failures (default: 1)")
    _add_spark(group)
    group = parser.add_argument_group("output")
    group.add_argument("--top", type=values.count_or_zero, metavar="N", default=10, help="results shown (default: 10)")
    group.add_argument("--output", metavar="DIR", help="write all results as Parquet")
    group.add_argument("--json", metavar="FILE", help="write a report of the run")
    group.add_argument("--verify", action="store_true", help="count exactly afterwards and show the error made")
    _add_talk(group)


def _add_demo(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="see what approximate fault tolerance saves, in about two minutes",
        description="Counts the words of a generated stream three times under the same failures: without backups, "
        "with exact backups, and with approximate ones. Shows a table and saves demo.png and demo.json.",
        epilog="example:\n  afspark demo --size 500MB --out out",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", type=values.size, metavar="SIZE", help="of the stream (default: 1GB)")
    parser.add_argument("--out", metavar="DIR", default="out", help="where plot and numbers go (default: out)")
    parser.add_argument(
        "--failures", type=values.count_or_zero, metavar="K", default=4, help="in each run (default: 4)"
    )
    parser.add_argument("--seed", type=values.seed, metavar="N", default=1, help="of input and failures (default: 1)")
    _add_spark(parser)
    _add_talk(parser)


def _add_inspect(commands: Any) -> None:
    parser = commands.add_parser(
        "inspect",
        help="look into the checkpoint of a query, running or not",
        description="Shows workers, thresholds, backups, losses and resident state of a query. Changes nothing.",
        epilog="exit status:\n"
        "  0: nothing damaged was found; 1: something is damaged; 2: not a checkpoint, or wrong options\n\n"
        "example:\n  afspark inspect checkpoint/ --verify --cells 10",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="folder or URI")
    parser.add_argument("--operator", metavar="NAME", help="show this operator only")
    parser.add_argument("--verify", action="store_true", help="read all backups in use and check them")
    parser.add_argument("--bad", action="store_true", help="show the items that operators could not take")
    parser.add_argument("--segments", metavar="DIR", help="folder with resident state (default: that of this machine)")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON")
    parser.add_argument(
        "--cells", type=values.count_or_zero, metavar="N", default=0, help="largest cells of each state (default: 0)"
    )
    parser.add_argument("--debug", action="store_true", help="show the traces of errors")


def _add_spark(group: Any) -> None:
    group.add_argument("--master", metavar="URL", help="Spark master (default: this machine, all cores)")
    group.add_argument(
        "--conf",
        type=values.setting,
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a Spark setting; may be given several times",
    )


def _add_talk(group: Any) -> None:
    group.add_argument("--quiet", action="store_true", help="say nothing but errors")
    group.add_argument("--debug", action="store_true", help="show Spark's log and the traces of errors")


def _checked(options: CommandOptions) -> CommandOptions:
    if options.generate is not None and options.format is not None:
        raise UsageError("--format says how files are read.", remedy="Leave it out with --generate.")
    if options.theta is not None and options.tolerance != "approximate":
        raise UsageError(
            f"--theta has no meaning with --tolerance {options.tolerance}.", remedy="Use --tolerance approximate."
        )
    if options.algorithm == HEAVY_HITTERS and options.input is not None:
        missing = [f"--{name}" for name in ("keys", "weight", "threshold") if getattr(options, name) is None]
        if missing:
            raise UsageError(f"Heavy hitters of files need {', '.join(missing)}.", remedy="Name existing columns.")
    return options
