"""The options of the algorithms behind ``afspark run``, as tables."""

from __future__ import annotations

from afspark.cli import values
from afspark.cli.algorithm_options import (
    CLICKS,
    CSV,
    DEFAULT_COSTS,
    DEFAULT_ITERATION,
    DEFAULT_RECOVERY_SECONDS,
    DEFAULT_ROWS,
    DEFAULT_THETA,
    GREP,
    HEAVY_HITTERS,
    HIGGS,
    JOIN,
    LIBSVM,
    PARQUET,
    REGRESSION,
    REPLICATED,
    WORDCOUNT,
    CommandOptions,
    GrepOptions,
    JoinOptions,
    RegressionOptions,
    check,
    check_heavy_hitters,
    check_join,
    check_regression,
)
from afspark.cli.option_table import ON_BAD, SEED, SPARK, TALK, Command, Group, Option
from afspark.model.training import PLACES

RUN_EXAMPLES = """\
examples:
  afspark run wordcount --input books/ --lower --top 20
  afspark run wordcount --generate 1GB --tolerance approximate --theta 10000 --kill 4 --verify
  afspark run wordcount --generate 1GB --tolerance active-standby --hosts 3 --kill 2 --verify
  afspark run wordcount --generate 1GB --tolerance adaptive --recovery-seconds 2 --hosts 2 --kill 1
  afspark run heavy-hitters --generate 500MB --json run.json
  afspark run heavy-hitters --input flows/ --keys src,dst --weight bytes --threshold 1e9 --output heavy/
  afspark run heavy-hitters --input captures/ --format pcap --keys dst --weight bytes --threshold 1e7
  afspark run grep whale --input books/ --output found/
  afspark run grep "colou?r$" --regex --ignore-case --generate 200MB --kill 2 --verify
  afspark run join --generate 500MB --rate 0.1 --kill 2 --verify
  afspark run join --input monday.pcap --with tuesday.pcap --format pcap --on dst,second --value bytes
  afspark run regression --generate clicks --rows 2000000 --kill 4 --verify
  afspark run regression --generate higgs --consistency ssp:5 --iteration 5000 --tolerance snapshot
  afspark run regression --input adult.csv --label income --positive ">50K" --numeric age --categorical job,sex
  afspark run sentiment --generate 50MB --kill 2 --verify
  afspark run sentiment --input tweets.jsonl --format jsonl --time created --keywords spark,#flink --output moods/
  afspark run smartgrid --generate 20MB --slices 5,60 --kill 2 --verify
  afspark run smartgrid --input sorted.csv --slices 1,5,15,60,120 --output predictions/
  afspark run bargain --generate 50MB --kill 2 --verify
  afspark run bargain --input events.parquet --format parquet --output bargains/
"""

FILES = Option("--input", "a file, a folder with files, or a glob", "DIR")
_COLUMN = Option("--column", "text column of Parquet (default: value)", "NAME")
BAD_ROWS = Option(
    "--on-bad", "rows with missing or unparsable values: count and skip them, or stop (default: skip)", kind=ON_BAD
)
ONE_OF_TWO = "input (one of the first two)"


def generated(what: str) -> Option:
    """The option that makes input."""
    return Option("--generate", f"make {what}", "SIZE", values.size)


def common(algorithm: str, *losses: Option) -> tuple[Group, ...]:
    """What all algorithms are asked. ``losses``: what else this one's failures may take."""
    return (
        Group(
            "fault tolerance",
            (
                Option(
                    "--tolerance",
                    "none: no backups; approximate: error of at most --theta; minibatch: exact; "
                    "upstream: exact, the same as minibatch where no items are pushed; "
                    "snapshot: exact, by snapshots --interval seconds apart and replay; "
                    "active-replication, active-standby, hot-standby, cold-standby, deployed: the same, with a second "
                    "copy of every worker on another host, which the first of them prepares furthest; "
                    "passive-replication: the same, and a lost worker is restored on another host; adaptive: exact, by "
                    "the cheapest of these schemes that is estimated to recover within --recovery-seconds. Those with "
                    "a second copy and adaptive need two hosts (default: approximate)",
                    "NAME",
                    ("none", "approximate", "minibatch", "upstream", "snapshot", *REPLICATED, "adaptive"),
                ),
                Option(
                    "--recovery-seconds",
                    "with --tolerance adaptive: how long a worker may take from a failure until it has applied its "
                    f"next batch (default: {DEFAULT_RECOVERY_SECONDS})",
                    "S",
                    values.positive_amount,
                ),
                Option(
                    "--costs",
                    f"with --tolerance adaptive: what resources cost, relatively (default: {DEFAULT_COSTS})",
                    "NAME=N,…",
                    values.costs,
                ),
                Option(
                    "--interval",
                    "with --tolerance snapshot or one of the schemes: the first batch that will end so many "
                    "seconds or more after the last snapshot takes the next one (default: 1)",
                    "S",
                    values.positive_amount,
                ),
                Option(
                    "--gap",
                    "with one of the schemes or adaptive: a lost worker goes on from its last checkpoint, or as its "
                    "copy is, without a replay. What came since then is lost, the summary says how much, and no error "
                    "is promised",
                ),
                Option(
                    "--theta",
                    "error that all failures together may cause with --tolerance approximate "
                    f"(default: {DEFAULT_THETA[algorithm]}), or adaptive (default: none)",
                    "N",
                    values.amount,
                ),
                *losses,
                Option(
                    "--checkpoint", "folder or URI where backups go and a later run goes on (default: temporary)", "DIR"
                ),
                Option("--savepoint", "start from this savepoint; needs a new, empty --checkpoint", "DIR"),
                Option("--takeover", "go on with a checkpoint that another run uses; that one has to stop"),
                Option(
                    "--kill",
                    "let K system failures happen; with --hosts each kills a host, with all that runs and is in memory "
                    "there (default: 0)",
                    "K",
                    values.count_or_zero,
                ),
            ),
        ),
        Group(
            "run",
            (
                Option("--workers", "workers with state (default: 2)", "N", values.count),
                Option(
                    "--batch-size",
                    "input of one batch (default: 40MB; with --kill K less, for at least 2K+2 batches)",
                    "SIZE",
                    values.size,
                ),
                SEED,
                *SPARK,
            ),
        ),
        Group(
            "hosts on this machine",
            (
                Option(
                    "--hosts",
                    "run on a Spark cluster of so many hosts, 127.0.0.2 and those after it, which is there for as long "
                    "as the run",
                    "N",
                    values.count,
                ),
                Option(
                    "--host-slots",
                    "task slots of each host (default: as many as --workers)",
                    "N",
                    values.count,
                ),
                Option("--away", "seconds until a killed host is started again (default: 3)", "S", values.amount),
            ),
        ),
        Group(
            "output",
            (
                Option("--top", "results shown (default: 10)", "N", values.count_or_zero),
                Option("--output", "write all results as Parquet", "DIR"),
                Option("--json", "write a report of the run", "FILE"),
                Option("--verify", "count exactly afterwards and show the error made"),
                *TALK,
            ),
        ),
    )


def texts(purpose: str, algorithm: str, columns: str = "") -> dict[str, str]:
    """Name and help texts of an algorithm's command; its examples are those of ``run`` that name it.

    ``columns`` are those that input must have, where no option names them.
    """
    needs = f" Input has the columns {columns}." if columns else ""
    examples = [line for line in RUN_EXAMPLES.splitlines() if f"run {algorithm}" in line]
    return {
        "name": algorithm,
        "help": purpose,
        "description": f"{purpose[:1].upper()}{purpose[1:]}.{needs}",
        "epilog": "\n".join(["examples:", *examples]),
    }


_WORDCOUNT = Command(
    **texts("count how often each word occurs", WORDCOUNT),
    options=CommandOptions,
    check=check,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("bytes of text of this size, like 500MB or 2GB"),
                Option("--format", "format of --input (default: text)", kind=("text", "parquet")),
            ),
            one_of=2,
        ),
        Group("words", (Option("--lower", "fold ASCII capitals"), _COLUMN)),
        *common(WORDCOUNT),
    ),
)

_HEAVY_HITTERS = Command(
    **texts("find keys with a large total weight", HEAVY_HITTERS),
    options=CommandOptions,
    check=check_heavy_hitters,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("packets of 24 bytes of this size, like 500MB or 2GB"),
                Option("--format", "format of --input (default: parquet)", kind=("text", "parquet", "pcap")),
            ),
            one_of=2,
        ),
        Group(
            "heavy hitters",
            (
                Option("--keys", "columns that make up a key (generated packets: src,dst)", "A,B", values.names),
                Option("--weight", "column that is summed (generated packets: bytes)", "C"),
                Option(
                    "--threshold",
                    "total weight from which a key is heavy (generated packets: 1/500 of all traffic)",
                    "N",
                    values.positive_amount,
                ),
                Option("--rows", "rows of the sketch (default: 4)", "N", values.count),
                Option("--columns", "counters in a row (default: 8000)", "N", values.count),
                BAD_ROWS,
            ),
        ),
        *common(HEAVY_HITTERS),
    ),
)

_GREP = Command(
    **texts("find the lines that hold a text or match a regular expression", GREP),
    options=GrepOptions,
    check=check,
    groups=(
        Group("", (Option("pattern", "what to look for", "PATTERN"),)),
        Group(
            ONE_OF_TWO,
            (
                FILES,
                generated("text of this size, like 500MB or 2GB; synthetic"),
                Option("--format", "format of --input (default: text)", kind=("text", "parquet")),
                _COLUMN,
                BAD_ROWS,
            ),
            one_of=2,
        ),
        Group(
            "lines",
            (
                Option("--regex", "PATTERN is a regular expression (RE2's syntax)"),
                Option("--ignore-case", "capitals and small letters are the same"),
                Option("--invert", "the lines without a match"),
            ),
        ),
        *common(GREP),
    ),
)

_JOIN = Command(
    **texts("estimate how many pairs of two streams agree, from samples", JOIN),
    options=JoinOptions,
    check=check_join,
    groups=(
        Group(
            "input (--input and --with, or --generate)",
            (
                Option("--input", "left stream: a file, a folder with files, or a glob", "DIR"),
                generated("two streams of packets of 24 bytes, together of this size, like 500MB; synthetic"),
                Option("--with", "right stream", "DIR", field="other"),
                Option("--format", "format of both (default: parquet)", kind=("parquet", "pcap")),
                Option("--overlap", "share of hosts that generated streams share (default: 0.5)", "P", values.amount),
                BAD_ROWS,
            ),
            one_of=2,
        ),
        Group(
            "join",
            (
                Option("--on", "columns in which a pair agrees (packets: dst,second)", "A,B", values.names),
                Option("--value", "column of the left stream for SUM and AVG (generated: bytes)", "C"),
                Option("--rate", "share of items that is sampled (default: 0.1)", "P", values.amount),
                Option("--confidence", "chance that an interval holds the truth (default: 0.95)", "P", values.amount),
            ),
        ),
        *common(JOIN),
    ),
)

_REGRESSION = Command(
    **texts("learn to predict a label, online, by logistic regression", REGRESSION),
    options=RegressionOptions,
    check=check_regression,
    groups=(
        Group(
            ONE_OF_TWO,
            (
                FILES,
                Option(
                    "--generate",
                    "make items: clicks with 11 categorical features, or collisions with 28 numbers; both synthetic",
                    kind=(CLICKS, HIGGS),
                    field="data",
                ),
                Option("--rows", f"items to generate (default: {DEFAULT_ROWS:,})", "N", values.count, field="count"),
                Option("--format", f"format of --input (default: {CSV})", kind=(LIBSVM, CSV, PARQUET)),
                Option("--label", "column of labels, 1 and 0 or -1 (default: label)", "C"),
                Option("--positive", "the label that counts as 1, where there are others", "TEXT"),
                Option("--numeric", "feature columns of numbers", "A,B", values.names),
                Option("--categorical", "feature columns of anything, hashed", "A,B", values.names),
                Option("--names", "columns of CSV files whose first line is a row", "A,B", values.names),
                Option("--delimiter", "of CSV files (default: a comma)", "CHAR"),
                BAD_ROWS,
            ),
            one_of=2,
        ),
        Group(
            "learning",
            (
                Option("--slots", "cells for hashed features (default: 1000000)", "N", values.count),
                Option("--norm", "longer rows are shortened (default: 32)", "N", values.positive_amount),
                Option("--rate", "first learning rate (default: 1)", "N", values.positive_amount),
                Option("--merge-every", "items between merges (default: every batch)", "N", values.count),
                Option(
                    "--consistency",
                    "workers train one model while a batch is under way, and wait for each other: bsp after every "
                    "step, ssp:N when they are N steps ahead, asp never; each needs a task slot "
                    "(default: merge once a batch)",
                    "MODEL",
                ),
                Option(
                    "--iteration",
                    f"items of a worker's step with --consistency (default: {DEFAULT_ITERATION:,})",
                    "N",
                    values.count,
                ),
                Option(
                    "--servers",
                    "where model servers are with --consistency: driver (beside it, default) or executors",
                    "PLACE",
                    PLACES,
                ),
                Option("--plot", "draw how the model converges with --consistency", "FILE.png"),
            ),
        ),
        *common(
            REGRESSION,
            Option(
                "--items",
                "items, here merged models on their way back, that failures may lose (default: 1000)",
                "N",
                values.amount,
            ),
        ),
    ),
)

ALGORITHMS = (_WORDCOUNT, _HEAVY_HITTERS, _GREP, _JOIN, _REGRESSION)
