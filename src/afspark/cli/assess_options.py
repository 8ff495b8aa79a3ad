"""The options of ``afspark assess``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afspark.cli import values
from afspark.cli.option_table import SPARK, TALK, Command, Group, Option
from afspark.errors import UsageError

BARGAIN = "bargain"
"""Instead of a file: Bargain Discovery, over generated trades and quotes."""

EXAMPLES = """\
PIPELINE.py has a function that is given a stream for each --input and returns the last operator, or its
writeStream: def pipeline(stream): return stream.apply(...). Another name than "pipeline" stands behind a
colon: FILE.py:build. Functions of that file can be scores: --score my_score.

A study that was cut short goes on where it was when it is started again with the same options.

examples:
  afspark assess shop.py --input orders.csv --score count --out report
  afspark assess shop.py --input orders.parquet --score sum:before --key id --outages 100,1000 --out report
  afspark assess shop.py --input orders.csv --score mean_error --key id --time placed --seconds 1,4,16 \\
      --sections keys:id:5000 --out report
  afspark assess bargain --events 5000000 --seed 1 --out report
"""


@dataclass(frozen=True, kw_only=True)
class AssessOptions:
    """What ``afspark assess`` was asked to do."""

    pipeline: str
    input: tuple[str, ...] = ()
    score: str | None = None
    other_score: tuple[str, ...] = ()
    key: str | None = None
    sections: str | None = None
    time: str | None = None
    rate: tuple[float, float] | None = None
    offsets: tuple[float, ...] = ()
    outages: tuple[float, ...] = ()
    seconds: tuple[float, ...] = ()
    targets: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    fault: str = "loss"
    repetitions: int = 5
    golden: int | None = None
    jitter: int | None = None
    batch_items: int | None = None
    threshold: float = 0.03
    failover: float = 2.0
    no_rerun: bool = False
    sample: int = 2
    processes: int | None = None
    events: int | None = None
    seed: int = 1
    out: str = "report"
    real_faults: bool = False
    keep: bool = False
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    quiet: bool = False
    debug: bool = False


def _list(kind: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def read(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(",") if part)

    return read


def _positive(text: str) -> float:
    number = values.amount(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return number


def _rate(text: str) -> tuple[float, float]:
    parts = text.split(":")
    if len(parts) != 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate; write AVERAGE:PEAK, such as 500:2200")
    return _positive(parts[0]), _positive(parts[1])


def _check(options: AssessOptions) -> None:
    if options.pipeline == BARGAIN:
        if options.input and options.events is not None:
            raise UsageError("Both --input and --events are given.", remedy="Read events, or generate some.")
        return
    if options.events is not None:
        raise UsageError("--events is for the pipeline 'bargain' alone.", remedy="Give --input.")
    for name, given in (("--input", options.input), ("--score", options.score)):
        if not given:
            raise UsageError(f"{name} is missing.", remedy="See afspark assess --help.")


_NAMES, _AMOUNTS = _list(str), _list(_positive)

ASSESS = Command(
    name="assess",
    help="find out which operators of a pipeline tolerate loss",
    description="Injects faults in front of the operators of a pipeline while it reads recorded input, scores what "
    "comes out, and advises a tolerance for each operator. Writes report.html, report.json and plots.",
    epilog=EXAMPLES,
    options=AssessOptions,
    check=_check,
    groups=(
        Group(
            "",
            (
                Option("pipeline", "a Python file, or 'bargain' for the application of the paper", "PIPELINE"),
                Option(
                    "--input",
                    "recorded items: .csv, .parquet, .jsonl, .arrow or .txt, or a folder of them; once for each "
                    "stream that the pipeline takes",
                    "FILE",
                    repeated=True,
                ),
                Option("--out", "where the report goes (default: report)", "DIR"),
                Option("--events", "of bargain, generated (default: 5000000)", "N", values.count),
            ),
        ),
        Group(
            "what is measured",
            (
                Option(
                    "--score",
                    "count, sum:COLUMN, mean:COLUMN, relative-error:KEY:COLUMN, precision:KEY or recall:KEY, with "
                    "columns of the output; or a function",
                    "S",
                ),
                Option(
                    "--other-score",
                    "the same trials scored otherwise as well; may be given several times",
                    "S",
                    repeated=True,
                ),
                Option("--key", "the column that identifies rows of the output, a growing number", "COLUMN"),
                Option(
                    "--sections",
                    "keys:COLUMN:SIZE, rows:SIZE or time:COLUMN:SECONDS (default: 200 of keys; without --key of rows)",
                    "S",
                ),
                Option(
                    "--threshold",
                    "by which part a section may be off and still be right (default: 0.03)",
                    "X",
                    _positive,
                ),
            ),
        ),
        Group(
            "faults",
            (
                Option("--fault", "loss, duplication or reordering (default: loss)", "FAULT"),
                Option(
                    "--targets",
                    "inject here, instead of where the rules say: source, or names of operators; b.input: one input "
                    "of b; c>: the output of c; a+c: both at once",
                    "LIST",
                    _NAMES,
                ),
                Option("--add", "inject here as well", "LIST", _NAMES),
                Option("--remove", "do not inject here", "LIST", _NAMES),
                Option(
                    "--offsets",
                    "when faults strike: items, or below 1 parts of the input (default: 0.1,0.3,0.5,0.7,0.9)",
                    "LIST",
                    _AMOUNTS,
                ),
                Option(
                    "--outages",
                    "how many items at the target a fault strikes, below 1 which part of them; without --seconds the "
                    "default is 0.001,0.005,0.02",
                    "LIST",
                    _AMOUNTS,
                ),
                Option(
                    "--seconds", "outages at the average and at the peak rate of the target", "LIST", _list(_positive)
                ),
                Option("--time", "the column of event times, from which rates are measured", "COLUMN"),
                Option("--rate", "of all inputs together, if there is no such column", "AVERAGE:PEAK", _rate),
                Option(
                    "--failover", "for how long sources are away under the advice (default: 2)", "SECONDS", _positive
                ),
                Option("--no-rerun", "do not measure again under the advice"),
            ),
        ),
        Group(
            "trials",
            (
                Option("--repetitions", "of each trial, each interleaved otherwise (default: 5)", "N", values.count),
                Option("--golden", "runs without faults (default: as many as repetitions)", "N", values.count),
                Option("--jitter", "over how many neighbours an item may move", "ITEMS", values.count_or_zero),
                Option("--batch-items", "about so many items a batch", "N", values.count),
                Option("--seed", "of interleavings and generated input (default: 1)", "N", values.seed),
                Option("--processes", "at a time (default: one a core)", "N", values.count),
                Option("--sample", "trials run again as Spark queries (default: 2)", "N", values.count_or_zero),
                Option(
                    "--real-faults",
                    "kill processes, lose and freeze hosts and disturb the store too, under the pipeline's tolerances",
                ),
                Option("--keep", "keep what the trials have left in OUT/campaign"),
                *SPARK,
                *TALK,
            ),
        ),
    ),
)
