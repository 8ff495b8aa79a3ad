"""Options of ``afspark run regression``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from afspark.cli import values
from afspark.cli.options import REGRESSION, CommandOptions, add_common, add_on_bad, add_parser
from afspark.errors import UsageError

CLICKS, HIGGS = "clicks", "higgs"
LIBSVM, CSV, PARQUET = "libsvm", "csv", "parquet"
DEFAULT_ROWS = 5_000_000
DEFAULT_ITEMS = 1000
_SPARSE_ONLY = ("numeric", "categorical", "positive", "delimiter", "names")


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


def add_regression(algorithms: Any) -> None:
    parser = add_parser(algorithms, REGRESSION, "learn to predict a label, online, by logistic regression")
    group = parser.add_argument_group("input (one of the first two)")
    origin = group.add_mutually_exclusive_group(required=True)
    origin.add_argument("--input", metavar="DIR", help="a file, a folder with files, or a glob")
    origin.add_argument(
        "--generate",
        dest="data",
        choices=(CLICKS, HIGGS),
        help="make items: clicks with 11 categorical features, or collisions with 28 numbers; both synthetic",
    )
    group.add_argument(
        "--rows", dest="count", type=values.count, metavar="N", help=f"items to generate (default: {DEFAULT_ROWS:,})"
    )
    group.add_argument("--format", choices=(LIBSVM, CSV, PARQUET), help=f"format of --input (default: {CSV})")
    group.add_argument("--label", metavar="C", default="label", help="column of labels, 1 and 0 or -1 (default: label)")
    group.add_argument("--positive", metavar="TEXT", help="the label that counts as 1, where there are others")
    group.add_argument("--numeric", type=values.names, metavar="A,B", default=(), help="feature columns of numbers")
    group.add_argument(
        "--categorical", type=values.names, metavar="A,B", default=(), help="feature columns of anything, hashed"
    )
    group.add_argument(
        "--names", type=values.names, metavar="A,B", default=(), help="columns of CSV files whose first line is a row"
    )
    group.add_argument("--delimiter", metavar="CHAR", default=",", help="of CSV files (default: a comma)")
    add_on_bad(group)
    group = parser.add_argument_group("learning")
    group.add_argument(
        "--slots", type=values.count, metavar="N", default=10**6, help="cells for hashed features (default: 1000000)"
    )
    group.add_argument(
        "--norm", type=values.positive_amount, metavar="N", default=32.0, help="longer rows are shortened (default: 32)"
    )
    group.add_argument(
        "--rate", type=values.positive_amount, metavar="N", default=1.0, help="first learning rate (default: 1)"
    )
    group.add_argument(
        "--merge-every", type=values.count, metavar="N", default=1, help="items between merges (default: every batch)"
    )
    add_common(parser, REGRESSION)
    parser.add_argument(
        "--items",
        type=values.amount,
        metavar="N",
        default=DEFAULT_ITEMS,
        help="items, here merged models on their way back, that failures may lose (default: 1000)",
    )


def regression_options(chosen: dict[str, Any]) -> RegressionOptions:
    """UsageError for what does not go together."""
    options = RegressionOptions(**chosen)
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
    return options
