"""All commands: from what stands on the command line to the frozen value it becomes."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from afspark._version import __version__
from afspark.cli import values
from afspark.cli.algorithm_options import CommandOptions
from afspark.cli.algorithm_tables import ALGORITHMS, RUN_EXAMPLES
from afspark.cli.application_tables import APPLICATIONS
from afspark.cli.assess_options import ASSESS, AssessOptions
from afspark.cli.bench_options import BENCH, BenchOptions
from afspark.cli.option_table import SEED, SPARK, TALK, Command, Group, Option, Parser, add_parser
from afspark.cli.send_options import SEND, STANDARD_INPUT, SendOptions


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


@dataclass(frozen=True, kw_only=True)
class SavepointOptions:
    """What ``afspark savepoint`` was asked to make."""

    checkpoint: str
    destination: str
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """What ``afspark plan`` was asked to compare."""

    checkpoint: str
    pipeline: str
    discard_state: tuple[str, ...] = ()
    json: str | None = None
    quiet: bool = False
    debug: bool = False


_DEMO = Command(
    name="demo",
    help="see what approximate fault tolerance saves, in about two minutes",
    description="Counts the words of a generated stream three times under the same failures: without backups, "
    "with exact backups, and with approximate ones. Shows a table and saves demo.png and demo.json.",
    epilog="example:\n  afspark demo --size 500MB --out out",
    options=DemoOptions,
    groups=(
        Group(
            "",
            (
                Option("--size", "of the stream (default: 1GB)", "SIZE", values.size),
                Option("--out", "where plot and numbers go (default: out)", "DIR"),
                Option("--failures", "in each run (default: 4)", "K", values.count_or_zero),
                SEED,
                *SPARK,
                *TALK,
            ),
        ),
    ),
)

_INSPECT = Command(
    name="inspect",
    help="look into the checkpoint of a query, running or not",
    description="Shows workers, thresholds, backups, snapshots, losses and resident state of a query. Changes nothing.",
    epilog="exit status:\n"
    "  0: nothing damaged was found; 1: something is damaged; 2: not a checkpoint, or wrong options\n\n"
    "example:\n  afspark inspect checkpoint/ --verify --cells 10",
    options=InspectOptions,
    groups=(
        Group(
            "",
            (
                Option("checkpoint", "folder or URI", "CHECKPOINT"),
                Option("--operator", "show this operator only", "NAME"),
                Option("--verify", "read all backups in use and check them"),
                Option("--bad", "show the items that operators could not take"),
                Option("--segments", "folder with resident state (default: that of this machine)", "DIR"),
                Option("--json", "write everything as JSON", "FILE"),
                Option("--cells", "largest cells of each state (default: 0)", "N", values.count_or_zero),
                Option("--debug", "show the traces of errors"),
            ),
        ),
    ),
)

_SAVEPOINT = Command(
    name="savepoint",
    help="keep a query as it is, to start others from there",
    description="Copies the query in a checkpoint, as it was at its last barrier, to a place of its own. A running "
    "query makes it at its next one, and goes on meanwhile.",
    epilog="A bare NAME belongs to the checkpoint, in its folder savepoints.\n\n"
    "examples:\n"
    "  afspark savepoint checkpoint/ before-upgrade\n"
    "  afspark savepoint checkpoint/ s3://bucket/saved/monday\n"
    "  afspark run wordcount --input in/ --savepoint checkpoint/savepoints/before-upgrade --checkpoint new/",
    options=SavepointOptions,
    groups=(
        Group(
            "",
            (
                Option("checkpoint", "folder or URI of the query", "CHECKPOINT"),
                Option("destination", "a name, or an empty folder or URI", "DESTINATION"),
                *TALK,
            ),
        ),
    ),
)

_PLAN = Command(
    name="plan",
    help="what a changed pipeline would make of a checkpoint",
    description="Compares a pipeline, field by field, with the one that a checkpoint or savepoint was last started "
    "with: what is kept, what starts anew, what is refused and why. No query is started, and nothing is changed.",
    epilog="PIPELINE is a program of yours, which is run until it would start its query, or a file with a function\n"
    "pipeline(stream) that returns an operator or its writeStream; another function is named behind a\n"
    "colon: words.py:build. A function is given a stream for each source of the checkpoint.\n\n"
    "exit status:\n"
    "  0: the pipeline would start; 1: it would be refused; 2: no checkpoint, no pipeline, or wrong options\n\n"
    "examples:\n"
    "  afspark plan checkpoint/ words.py\n"
    "  afspark plan checkpoint/ words.py --discard-state counts --json plan.json",
    options=PlanOptions,
    groups=(
        Group(
            "",
            (
                Option("checkpoint", "folder or URI of a query or savepoint", "CHECKPOINT"),
                Option("pipeline", "a Python file", "PIPELINE"),
                Option("--discard-state", "an operator whose state may be given up", "NAME", repeated=True),
                Option("--json", "write everything as JSON", "FILE"),
                *TALK,
            ),
        ),
    ),
)

_RUN = (*ALGORITHMS, *APPLICATIONS)
_COMMANDS = (_DEMO, _INSPECT, _SAVEPOINT, _PLAN, SEND, BENCH, ASSESS)

Options = (
    CommandOptions
    | DemoOptions
    | InspectOptions
    | SavepointOptions
    | PlanOptions
    | SendOptions
    | BenchOptions
    | AssessOptions
)


def parse(argv: list[str] | None) -> Options:
    """The options in ``argv`` (None: of this process). UsageError if they make no sense."""
    parser = build_parser()
    namespace, rest = parser.parse_known_args(argv)
    chosen = vars(namespace)
    name = chosen.pop("command")
    if name == SEND.name:
        # argparse takes all files at the first place where some could stand: those behind an option are left over.
        files = [text for text in rest if text == STANDARD_INPUT or not text.startswith("-")]
        chosen["files"] += files
        rest = [text for text in rest if text not in files]
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    commands = {command.name: command for command in (*_RUN, *_COMMANDS)}
    return commands[chosen.get("algorithm", name)].made_of(chosen)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands, made of their tables."""
    parser = Parser(
        prog="afspark",
        description="Streaming on Spark with fault tolerance that costs what it is worth: "
        "say how much error failures may cause, pay for no more.",
    )
    parser.add_argument("--version", action="version", version=f"afspark {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    run = add_parser(
        commands,
        "run",
        "run an algorithm over files or generated input",
        "Runs an algorithm over all input there is, and shows what it found and what it cost.",
        RUN_EXAMPLES,
    )
    algorithms = run.add_subparsers(dest="algorithm", metavar="ALGORITHM", required=True, parser_class=Parser)
    for algorithm in _RUN:
        algorithm.add_to(algorithms)
    for command in _COMMANDS:
        command.add_to(commands)
    return parser
