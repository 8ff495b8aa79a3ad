"""``afspark demo``: the same stream and the same failures under three tolerances."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from afspark.cli.assignment import Assignment, finished
from afspark.cli.options import DemoOptions
from afspark.cli.places import RunFolders, make_folder
from afspark.cli.planning import Plan, plan
from afspark.cli.progressbar import Display, display_for
from afspark.cli.spark import check_conf, spark_session
from afspark.cli.tasks import WordCountTask
from afspark.cli.verify import recount
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance
from afspark.protocol.fault_plan import FaultPlan
from afspark.report.document import save_json
from afspark.report.plot import Contender, save_plot
from afspark.report.summary import comparison_table, console
from afspark.report.wording import bytes_text, number_text, seconds_text
from afspark.sources import ZipfWords

DEFAULT_BYTES = 1_000_000_000
THETA = 10_000
WORKERS = 2
_WARM_UP_BYTES = 4_000_000


@dataclass(frozen=True)
class Entrant:
    """A tolerance that takes part, and how it is shown."""

    tolerance: Tolerance
    name: str
    detail: str
    color: str


ENTRANTS = (
    Entrant(Nothing(), "No backups", "start empty after a failure", "#9aa0a6"),
    Entrant(MiniBatch(), "Exact", "every change in every batch", "#d1793b"),
    Entrant(Approximate(THETA), "Approximate", f"error of at most {THETA:,}", "#2f6db5"),
)


def demo(options: DemoOptions) -> int:
    """Runs the demo; the exit status."""
    check_conf(dict(options.conf))
    folder = make_folder(options.out, "--out")
    size = options.size or DEFAULT_BYTES
    task = WordCountTask(ZipfWords(size, seed=options.seed))
    found = plan(task.source, workers=WORKERS, kills=options.failures)
    faults = FaultPlan.seeded(options.failures, batches=found.batches, seed=options.seed)
    with RunFolders() as workspace, _spark(options, workspace) as spark:
        _say(options, f"Counting the words of {bytes_text(size)} exactly, to compare with …")
        exact = recount(spark.sparkContext, task.recount, found.chunks, task.keys)
        with display_for(quiet=options.quiet) as display:
            contenders = [
                _contend(spark, entrant, DemoStage(task, found, faults, workspace), exact, display, options)
                for entrant in ENTRANTS
            ]
    _publish(options, folder, contenders)
    return 0


@dataclass(frozen=True)
class DemoStage:
    """What is the same for all entrants."""

    task: WordCountTask
    plan: Plan
    faults: FaultPlan
    workspace: RunFolders


@contextmanager
def _spark(options: DemoOptions, workspace: RunFolders) -> Iterator[SparkSession]:
    _say(options, "Starting Spark …")
    log = None if options.debug else workspace.log
    with spark_session(options.master, options.conf, workers=WORKERS, log=log) as spark:
        # The first query of a JVM is slow, which would be held against whoever comes first.
        task = WordCountTask(ZipfWords(_WARM_UP_BYTES))
        trial = Assignment(
            task=task,
            plan=plan(task.source, workers=WORKERS),
            tolerance=MiniBatch(),
            workers=WORKERS,
            faults=FaultPlan(),
            checkpoint=workspace.fresh("warm-up"),
        )
        with finished(spark, trial, Display(), label=""):
            pass
        yield spark


def _contend(
    spark: SparkSession, entrant: Entrant, stage: DemoStage, exact: pa.Table, display: Display, options: DemoOptions
) -> Contender:
    assignment = Assignment(
        task=stage.task,
        plan=stage.plan,
        tolerance=entrant.tolerance,
        workers=WORKERS,
        faults=stage.faults,
        checkpoint=stage.workspace.fresh(entrant.tolerance.name),
    )
    settings = {
        "generate": stage.plan.total_bytes,
        "tolerance": entrant.tolerance.to_json(),
        "workers": WORKERS,
        "batch_size": stage.plan.batch_bytes,
        "kill": options.failures,
        "seed": options.seed,
    }
    with finished(spark, assignment, display, label=f"{entrant.name:<11}") as outcome:
        judgement = stage.task.judge(outcome.query.results(), exact, outcome.query.shares)
        report = outcome.report(assignment, settings=settings, observed=judgement.observed, results=len(exact))
    return Contender(entrant.name, entrant.detail, entrant.color, report)


def _publish(options: DemoOptions, folder: Path, contenders: list[Contender]) -> None:
    first = contenders[0].report
    title = f"Word count over {bytes_text(first.bytes)} under {options.failures} system failures"
    subtitle = (
        f"Generated Zipf text, {WORKERS} workers, {first.batches} batches; "
        "each failure destroys the state of every worker, at the same moments in all three runs"
    )
    save_json(
        folder / "demo.json", {one.report.settings["tolerance"]["name"]: one.report.to_json() for one in contenders}
    )
    save_plot(folder / "demo.png", contenders, title=title, subtitle=subtitle)
    if options.quiet:
        return
    out = console()
    out.print(comparison_table([_row(one) for one in contenders], title))
    out.print(f"Saved {folder / 'demo.png'} and {folder / 'demo.json'}", markup=False, soft_wrap=True)


def _row(one: Contender) -> dict[str, Any]:
    report = one.report
    recoveries = [entry["recovery_seconds"] for entry in report.ledger if entry["recovery_seconds"] is not None]
    promised = report.promised
    return {
        "fault\ntolerance": one.name,
        "throughput": f"{report.mb_per_second:,.0f} MB/s",
        "cells\nbacked up": number_text(report.backups["cells"]),
        "bytes\nbacked up": bytes_text(report.backups["bytes"]),
        "slowest\nrecovery": seconds_text(max(recoveries, default=None)),
        "error\nobserved": number_text(one.observed),
        "error\npromised": "any" if promised is None else f"≤ {number_text(promised)}",
    }


def _say(options: DemoOptions, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)
