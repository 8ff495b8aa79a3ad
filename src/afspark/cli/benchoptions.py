"""The options of ``afspark bench``."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from afspark.cli import values

EXAMPLES = """\
experiments:
  1               throughput of all schemes, pushed input, native Spark (schemes, pushed, native)
  2               WordCount against \u0398 and L (thresholds)
  3, 4, 5         accuracy after failures (heavy-hitters, join, regression)
  table5          the schemes for all algorithms (schemes, pushed)
  kernels, scale  the share of the kernels, and cost from 10^7 to 10^9 items
  rate            how fast pushed items are taken and acknowledged
  profile, state, upkeep
                  where a batch's time goes, the state stage alone, divergence
  all             everything, in hours

examples:
  afspark bench 3 --seeds 5
  afspark bench schemes native --rounds 5 --out out/bench --page out/results.md
"""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What ``afspark bench`` was asked to do."""

    experiments: tuple[str, ...]
    rounds: int = 3
    seeds: int = 20
    batches: int = 14
    inputs: str
    out: str = "out/bench"
    page: str | None = None
    debug: bool = False


def add_bench(commands: Any) -> None:
    """Makes the command known to the parser."""
    parser = commands.add_parser(
        "bench",
        help="measure what the papers measured, on this machine",
        description="Runs experiments on two cores of this machine, contenders interleaved; figures are saved as JSON.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help="which; none: only write the page")
    parser.add_argument("--rounds", type=values.count, metavar="N", default=3, help="measured repetitions (default: 3)")
    parser.add_argument("--seeds", type=values.count, metavar="N", default=20, help="runs with failures (default: 20)")
    parser.add_argument("--batches", type=_batches, metavar="N", default=14, help="of 40 MB in a run (default: 14)")
    inputs = Path(tempfile.gettempdir()) / "afspark-bench-inputs"
    parser.add_argument("--inputs", metavar="DIR", default=str(inputs), help="where generated files are kept")
    parser.add_argument("--out", metavar="DIR", default="out/bench", help="where figures go (default: out/bench)")
    parser.add_argument("--page", metavar="FILE", help="write a page about all figures in --out, which lies below it")
    parser.add_argument("--debug", action="store_true", help="show Spark's log and the traces of errors")


def _batches(text: str) -> int:
    count = values.count(text)
    if count < 4:
        raise argparse.ArgumentTypeError("the first two batches are not measured, so at least 4 are needed")
    return count


def bench_options(chosen: dict[str, Any]) -> BenchOptions:
    return BenchOptions(**{**chosen, "experiments": tuple(chosen["experiments"])})
