"""What the algorithms behind ``afspark run`` were asked to do, and which of it does not go together."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.errors import UsageError

WORDCOUNT, HEAVY_HITTERS, GREP, JOIN, REGRESSION = "wordcount", "heavy-hitters", "grep", "join", "regression"
SENTIMENT, SMARTGRID = "sentiment", "smartgrid"
DEFAULT_BATCH_BYTES = 40_000_000
DEFAULT_THETA = {
    WORDCOUNT: 10_000,
    HEAVY_HITTERS: 100_000,
    GREP: 10_000,
    JOIN: 10_000,
    REGRESSION: 10,
    SENTIMENT: 100,
    SMARTGRID: 10,
}
#: those with a second copy of every worker, or with a place for one
REPLICATED = (
    "active-replication",
    "active-standby",
    "hot-standby",
    "cold-standby",
    "deployed",
    "passive-replication",
)
CLICKS, HIGGS = "clicks", "higgs"
LIBSVM, CSV, PARQUET, JSON_LINES = "libsvm", "csv", "parquet", "jsonl"
DEFAULT_ROWS = 5_000_000
DEFAULT_ITEMS = 1000
_SPARSE_ONLY = ("numeric", "categorical", "positive", "delimiter", "names")


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
    savepoint: str | None = None
    takeover: bool = False
    #: seconds between two snapshots
    interval: float | None = None
    output: str | None = None
    json: str | None = None
    quiet: bool = False
    debug: bool = False


@dataclass(frozen=True, kw_only=True)
class GrepOptions(CommandOptions):
    """What ``afspark run grep`` was asked to do."""

    pattern: str = ""
    regex: bool = False
    ignore_case: bool = False
    invert: bool = False


@dataclass(frozen=True, kw_only=True)
class JoinOptions(CommandOptions):
    """What ``afspark run join`` was asked to do. ``input`` goes with ``other``; None: decided by the input."""

    other: str | None = None
    on: tuple[str, ...] | None = None
    value: str | None = None
    rate: float = 0.1
    overlap: float | None = None
    confidence: float = 0.95


@dataclass(frozen=True, kw_only=True)
class RegressionOptions(CommandOptions):
    """What ``afspark run regression`` was asked to do. Exactly one of ``input`` and ``data`` is given."""

    data: str | None = None
    count: int | None = None
    label: str = "label"
    positive: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    delimiter: str = ","
    slots: int = 10**6
    norm: float = 32.0
    rate: float = 1.0
    merge_every: int = 1
    items: float = DEFAULT_ITEMS


def check(options: CommandOptions) -> None:
    """Raises UsageError for options that do not go together for any algorithm."""
    if options.generate is not None and options.format is not None:
        raise UsageError("--format says how files are read.", remedy="Leave it out with --generate.")
    if options.interval is not None and options.tolerance not in ("snapshot", *REPLICATED):
        raise UsageError(
            f"--interval has no meaning with --tolerance {options.tolerance}.",
            remedy=f"Use --tolerance snapshot, {', '.join(REPLICATED[:-1])} or {REPLICATED[-1]}.",
        )
    if options.theta is not None and options.tolerance != "approximate":
        raise UsageError(
            f"--theta has no meaning with --tolerance {options.tolerance}.", remedy="Use --tolerance approximate."
        )


def check_heavy_hitters(options: CommandOptions) -> None:
    """Raises UsageError for options that do not go together for heavy hitters."""
    check(options)
    if options.input is not None:
        missing = [f"--{name}" for name in ("keys", "weight", "threshold") if getattr(options, name) is None]
        if missing:
            raise UsageError(f"Heavy hitters of files need {', '.join(missing)}.", remedy="Name existing columns.")


def check_join(options: JoinOptions) -> None:
    """Raises UsageError for options that do not go together for a join."""
    if (options.input is None) != (options.other is None):
        raise UsageError("A join of files needs two streams.", remedy="Use --input and --with, or --generate.")
    if options.overlap is not None and options.generate is None:
        raise UsageError("--overlap says how streams are generated.", remedy="Leave it out with --input.")
    if options.input is not None and options.format != "pcap" and options.on is None:
        raise UsageError("A join of files needs --on.", remedy="Name columns that both streams have.")
    check(options)


def check_regression(options: RegressionOptions) -> None:
    """Raises UsageError for options that do not go together for a regression."""
    if options.data is not None:
        for name in ("format", *_SPARSE_ONLY):
            if getattr(options, name) != getattr(RegressionOptions(algorithm=REGRESSION), name):
                raise UsageError(f"--{name} says how files are read.", remedy="Leave it out with --generate.")
    elif options.count is not None:
        raise UsageError("--rows says how much is generated.", remedy="Leave it out with --input.")
    if options.format == LIBSVM:
        for name in _SPARSE_ONLY:
            if getattr(options, name) != getattr(RegressionOptions(algorithm=REGRESSION), name) and name != "positive":
                raise UsageError(f"--{name} has no meaning for libsvm files.", remedy="They name no columns.")
    if options.format == PARQUET and options.names:
        raise UsageError("--names has no meaning for Parquet files.", remedy="They name their columns themselves.")
    check(options)
