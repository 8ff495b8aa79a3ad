"""What the algorithms behind ``afspark run`` were asked to do, and which of it does not go together."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.errors import UsageError
from afspark.model.consistency import consistency_of

WORDCOUNT, HEAVY_HITTERS, GREP, JOIN, REGRESSION = "wordcount", "heavy-hitters", "grep", "join", "regression"
SENTIMENT, SMARTGRID, BARGAIN = "sentiment", "smartgrid", "bargain"
DEFAULT_BATCH_BYTES = 40_000_000
DEFAULT_THETA = {
    WORDCOUNT: 10_000,
    HEAVY_HITTERS: 100_000,
    GREP: 10_000,
    JOIN: 10_000,
    REGRESSION: 10,
    SENTIMENT: 100,
    SMARTGRID: 10,
    BARGAIN: 0.1,
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
DEFAULT_ITERATION = 10_000
DEFAULT_ITEMS = 1000
MOST_HOSTS = 200
DEFAULT_RECOVERY_SECONDS = 5
DEFAULT_COSTS = "cpu=1,memory=0,network=1,hosts=10"
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
    #: hosts of a cluster on this machine for the length of the run; None: none is started
    hosts: int | None = None
    host_slots: int | None = None
    #: seconds for which a killed host is off
    away: float | None = None
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    checkpoint: str | None = None
    savepoint: str | None = None
    takeover: bool = False
    #: seconds between two snapshots
    interval: float | None = None
    #: whether a lost worker goes on from its last checkpoint, and nothing is replayed
    gap: bool = False
    #: within how many seconds a worker has to recover, and what resources cost
    recovery_seconds: float | None = None
    costs: tuple[tuple[str, float], ...] | None = None
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
    #: bsp, ssp:STEPS or asp; None: models are merged once a batch
    consistency: str | None = None
    #: items of a worker's step
    iteration: int | None = None
    #: where model servers are
    servers: str = "driver"
    #: where a picture of how the model converges goes
    plot: str | None = None
    items: float = DEFAULT_ITEMS


def check(options: CommandOptions) -> None:
    """Raises UsageError for options that do not go together for any algorithm."""
    _check_hosts(options)
    if options.generate is not None and options.format is not None:
        raise UsageError("--format says how files are read.", remedy="Leave it out with --generate.")
    if options.interval is not None and options.tolerance not in ("snapshot", *REPLICATED):
        raise UsageError(
            f"--interval has no meaning with --tolerance {options.tolerance}.",
            remedy=f"Use --tolerance snapshot, {', '.join(REPLICATED[:-1])} or {REPLICATED[-1]}.",
        )
    if options.gap and options.tolerance not in (*REPLICATED, "adaptive"):
        raise UsageError(
            f"--gap has no meaning with --tolerance {options.tolerance}.",
            remedy=f"Use --tolerance {', '.join(REPLICATED)} or adaptive.",
        )
    if options.theta is not None and options.tolerance not in ("approximate", "adaptive"):
        raise UsageError(
            f"--theta has no meaning with --tolerance {options.tolerance}.",
            remedy="Use --tolerance approximate or adaptive.",
        )
    for name, given in (("--recovery-seconds", options.recovery_seconds), ("--costs", options.costs)):
        if given is not None and options.tolerance != "adaptive":
            raise UsageError(
                f"{name} has no meaning with --tolerance {options.tolerance}.", remedy="Use --tolerance adaptive."
            )


def _check_hosts(options: CommandOptions) -> None:
    if options.hosts is None:
        for name, given in (("--host-slots", options.host_slots), ("--away", options.away)):
            if given is not None:
                raise UsageError(f"{name} is about the hosts of --hosts.", remedy="Leave it out, or use --hosts 2.")
    elif options.hosts > MOST_HOSTS:
        raise UsageError(f"{options.hosts} hosts are too many.", remedy=f"Use --hosts {MOST_HOSTS} or fewer.")
    elif options.master is not None or "spark.master" in dict(options.conf):
        raise UsageError(
            "--hosts starts a cluster of its own, and --master names another one.", remedy="Leave out one of them."
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


def _check_training(options: RegressionOptions) -> None:
    if options.consistency is None:
        if options.iteration is not None:
            raise UsageError(
                "--iteration says how many items a step has in which workers train together.",
                remedy="Add --consistency bsp, or leave it out: models are merged once a batch.",
            )
        if options.servers != RegressionOptions.servers:
            raise UsageError(
                "--servers says where the servers of a model are that workers train together.",
                remedy="Add --consistency bsp, or leave it out.",
            )
        if options.plot is not None:
            raise UsageError(
                "--plot shows how a model converges that workers train together.",
                remedy="Add --consistency bsp, or leave it out.",
            )
        return
    consistency_of(options.consistency)
    if options.merge_every != 1:
        raise UsageError("--merge-every is for models that are merged once a batch.", remedy="Use --iteration.")
    if options.tolerance in (*REPLICATED, "adaptive"):
        raise UsageError(
            f"Workers under --tolerance {options.tolerance} cannot train a model together.",
            remedy="Use approximate, minibatch, snapshot or none, or leave out --consistency.",
        )


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
    _check_training(options)
    if options.format == PARQUET and options.names:
        raise UsageError("--names has no meaning for Parquet files.", remedy="They name their columns themselves.")
    check(options)
