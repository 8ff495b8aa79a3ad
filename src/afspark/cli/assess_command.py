"""``afspark assess``: a study of a user's pipeline, or of Bargain Discovery, and its report."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as RichProgress

from afspark.algorithms import bargain_discovery
from afspark.cli.assess_options import BARGAIN, AssessOptions
from afspark.cli.places import RunFolders, make_folder
from afspark.cli.spark import check_conf, spark_session
from afspark.cli.user_files import function_of, load_module
from afspark.cluster.spark.foreign_errors import is_sparks, what_spark_says
from afspark.errors import AfsparkError, first_line
from afspark.lab.scores import parse_score
from afspark.lab.study import DEFAULT_OFFSETS, Study
from afspark.lab.study_inputs import StudyInput
from afspark.lab.study_result import StudyResult
from afspark.report.lab_report import PAGE_NAME, write_report
from afspark.sources import MarketEvents

EVENTS = 5_000_000
_LINE_SECONDS = 5.0
_WORK = "campaign"


def assess(options: AssessOptions) -> int:
    """Runs a study and writes its report; the exit status."""
    check_conf(dict(options.conf))
    # Equal runs are no mistake here, and metrics say what they do not define.
    warnings.filterwarnings("ignore", message="Precision loss occurred")
    folder = make_folder(options.out, "--out")
    work = folder / _WORK
    settings = bargain_study(options) if options.pipeline == BARGAIN else file_study(options)
    with RunFolders() as workspace, StudyDisplay(quiet=options.quiet) as display:
        session = partial(
            spark_session, options.master, options.conf, workers=2, log=None if options.debug else workspace.log
        )
        if options.master is not None:
            with session() as spark:
                result = _study(options, settings, work, spark).run(display.show)
                result = _sampled(options, settings, folder, lambda: nullcontext(spark), result, display)
        else:
            result = _study(options, settings, work, None).run(display.show)
            result = _sampled(options, settings, folder, session, result, display)
    findings = write_report(result, folder)
    # What was to be run again on Spark and was not can still be, if the trials are there.
    if not options.keep and bool(result.samples) == bool(options.sample):
        _remove(work)
    if not options.quiet:
        _tell(findings.to_json())
        print(f"Report: {folder / PAGE_NAME}")
    return 0


def _remove(campaign: Path) -> None:
    """Removes a campaign at once: nobody should go on from what is left if that is cut short."""
    leaving = campaign.with_name(f"{campaign.name}-removed")
    shutil.rmtree(leaving, ignore_errors=True)
    campaign.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def _study(options: AssessOptions, settings: dict[str, Any], work: Path, spark: SparkSession | None) -> Study:
    given = dict(settings)
    return Study(
        given.pop("pipeline"),
        given.pop("input"),
        targets=options.targets or None,
        add=options.add,
        remove=options.remove,
        fault=options.fault,
        repetitions=options.repetitions,
        golden_runs=options.golden,
        seed=options.seed,
        batch_items=options.batch_items,
        threshold=options.threshold,
        processes=options.processes,
        real_faults=options.real_faults,
        failover=None if options.no_rerun else options.failover,
        spark=spark,
        work=work,
        **given,
    )


def _sampled(
    options: AssessOptions,
    settings: dict[str, Any],
    folder: Path,
    session: Callable[[], AbstractContextManager[SparkSession]],
    result: StudyResult,
    display: StudyDisplay,
) -> StudyResult:
    """The result with some trials run again on Spark, or with a note if that cannot be."""
    if not options.sample:
        return result
    # Hours of trials are worth their report, whatever becomes of Spark.
    write_report(result, folder)
    if options.master is None:
        display.show("starting Spark", 0, 0, None)
    try:
        with session() as spark:
            study = _study(options, settings, folder / _WORK, None)
            samples = study.sampled(spark, options.sample, display.show)
    except (AfsparkError, PySparkException, Py4JError) as error:
        said = what_spark_says(str(error)).rstrip(".") if is_sparks(error) else first_line(error)
        why = f"No trial was run again as a streaming query: {said}. The same command tries it again."
        return replace(result, notes=(*result.notes, why))
    return replace(result, samples=samples)


# --- what is studied ----------------------------------------------------------------------------------------


def bargain_study(options: AssessOptions) -> dict[str, Any]:
    """The paper's own experiment, as far as the options do not say otherwise."""
    inputs: list[StudyInput] = list(options.input) or [MarketEvents(options.events or EVENTS, seed=options.seed)]
    seconds = options.seconds if options.seconds or options.outages else (0.5, 1, 2, 4, 8, 16)
    score = options.score or "sum:gain"
    return {
        "pipeline": _bargains,
        "input": inputs,
        "score": score,
        "other_scores": options.other_score or [one for one in ("sum:gain", "mean:gain", "count") if one != score],
        "key": options.key or "key",
        "sections": options.sections or "keys:key:5000",
        "offsets": options.offsets or DEFAULT_OFFSETS,
        "outages": options.outages,
        "seconds": seconds,
        "time": None if options.rate else options.time or "time",
        "rate": options.rate,
        "jitter": 50 if options.jitter is None else options.jitter,
        "name": "Bargain Discovery",
    }


def _bargains(stream: Any) -> Any:
    return bargain_discovery(stream, workers=1).writeStream.outputMode("append")


def file_study(options: AssessOptions) -> dict[str, Any]:
    """A study of the pipeline in a file of the user's."""
    path, _, name = options.pipeline.partition(":")
    module = load_module(Path(path), f"Give one, or {BARGAIN!r}.")
    builder = function_of(module, path, name)
    functions = {
        key: value
        for key, value in vars(module).items()
        if callable(value) and not isinstance(value, type) and not key.startswith("_") and value is not builder
    }
    assert options.score is not None
    scores = [parse_score(one, functions) for one in (options.score, *options.other_score)]
    return {
        "pipeline": builder,
        "input": list(options.input),
        "score": scores[0],
        "other_scores": scores[1:],
        "key": options.key,
        "sections": options.sections,
        "offsets": options.offsets or DEFAULT_OFFSETS,
        "outages": options.outages,
        "seconds": options.seconds,
        "time": options.time,
        "rate": options.rate,
        "jitter": options.jitter or 0,
        "name": Path(path).stem,
    }


# --- what is shown ------------------------------------------------------------------------------------------


class StudyDisplay:
    """How far a study is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True, highlight=False)
        self._quiet, self._next, self._what, self._said = quiet, 0.0, "", ""
        self._bar: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        if not quiet and console.is_terminal:
            self._bar = RichProgress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"),
                console=console,
            )

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, what: str, done: int, total: int, left: float | None) -> None:
        """Takes note of how far a part of the study has come."""
        said = f"about {_duration(left)} left" if left else ""
        if self._bar is not None:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total or None, left="")
            self._bar.update(self._tasks[what], completed=done, left=said)
        elif not self._quiet:
            text = f"{what}: {done:,} of {total:,}" if total else what
            self._line(what, f"{text}, {said}" if said else text, last=done == total)

    def _line(self, what: str, text: str, *, last: bool) -> None:
        too_soon = what == self._what and time.monotonic() < self._next
        if text == self._said or (too_soon and not last):
            return
        self._what, self._said, self._next = what, text, time.monotonic() + _LINE_SECONDS
        print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def shown(value: float | int | None) -> str:
    """A figure for the table.

    >>> shown(None), shown(340), shown(0.756)
    ('-', '340', '0.76')
    """
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _tell(document: dict[str, Any]) -> None:
    """The table of metrics, and the advice."""
    print(f"{'target':<16}{'C':>8}{'D':>14}{'R':>8}{'I':>10}")
    for name, target in document["targets"].items():
        sigma, verdict = target["doq"]
        spread = f"({shown(sigma)},{verdict or '-'})"
        print(f"{name:<16}{shown(target['coq']):>8}{spread:>14}{shown(target['rlq']):>8}{shown(target['ilq']):>10}")
        for note in target["own_variance"]:
            print(f"  {note}")
    agreement = document["agreement"]
    if agreement["sampled"]:
        print(f"{agreement['agreeing']} of {agreement['sampled']} sampled trials equal their real queries.")
    if faults := document["real_faults"]:
        same = sum(one["unchanged"] for one in faults)
        print(f"After {same} of {len(faults)} real faults the output is the same.")
        known = [one["within_bound"] for one in faults if one["within_bound"] is not None]
        print(f"{sum(known)} of {len(known)} that can be compared with their bounds are within them.")
    for note in document["notes"]:
        print(note)
    for line in document["advice"]["text"]:
        print(line)
