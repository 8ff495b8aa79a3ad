"""One run of one task under one tolerance: started, followed to its end, told about, and cleared away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from afspark.api.query import Query
from afspark.api.stream import read_stream
from afspark.cli.failures import GOES_ON, own_error, with_hint
from afspark.cli.follow import follow
from afspark.cli.planning import Plan
from afspark.cli.progressbar import Display
from afspark.cli.spark import GONE
from afspark.cli.tasks import Task
from afspark.errors import AfsparkError
from afspark.policies import Tolerance
from afspark.protocol.fault_plan import FaultPlan
from afspark.report.document import RunReport


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """A task with everything that decides how it runs. Only what is ``lasting`` leaves resident state behind."""

    task: Task
    plan: Plan
    tolerance: Tolerance
    workers: int
    faults: FaultPlan
    checkpoint: str
    lasting: bool = False
    takeover: bool = False
    savepoint: str | None = None

    def start(self, spark: SparkSession) -> Query:
        stream = read_stream(spark).source(self.task.source)
        stateful = self.task.apply(stream, workers=self.workers, tolerance=self.tolerance)
        writer = self.task.write(stateful, self.checkpoint).option("checkpointLocation", self.checkpoint)
        writer = writer.option("batchBytes", self.plan.batch_bytes).trigger(availableNow=True)
        if self.savepoint is not None:
            writer = writer.option("savepoint", self.savepoint)
        return writer.inject(self.faults).start(takeover=self.takeover)


@dataclass(frozen=True)
class TaskOutcome:
    """A query that has ended well, and the seconds from its first batch to its end (0 if there was none)."""

    query: Query
    seconds: float

    def report(self, assignment: Assignment, *, settings: dict[str, Any], **extras: Any) -> RunReport:
        """What is to be told; ``extras`` are further fields of the report.

        Ask for results first: workers that lost their state after the last batch are recovered then.
        """
        query, totals = self.query, self.query.totals
        last = query.lastProgress or {"state": {"cells": 0, "bytes": 0}}
        report = RunReport(
            algorithm=assignment.task.algorithm,
            settings=settings,
            items=totals.items,
            bytes=totals.bytes,
            seconds=self.seconds,
            batches=totals.batches,
            backups=dict(totals.backups),
            requests=dict(totals.requests),
            state=last["state"],
            main_state=assignment.task.main_state,
            ledger=query.ledger(),
            promised=assignment.tolerance.promise() if assignment.task.bounded else None,
            realised=query.bounds(),
            resumed=query.resumed,
        )
        return replace(report, **extras)


#: What goes on beside a query while its batches run.
Companion = Callable[[Query], AbstractContextManager[None]]
UNDISTURBED: Companion = lambda query: nullcontext()  # noqa: E731


@contextmanager
def finished(
    spark: SparkSession,
    assignment: Assignment,
    display: Display,
    *,
    label: str,
    beside: Companion = UNDISTURBED,
) -> Iterator[TaskOutcome]:
    """Runs the assignment to its end; results can be asked for in the block, the state goes after it."""
    query = assignment.start(spark)
    try:
        display.begin(label, assignment.plan.total_bytes)
        with beside(query):
            seconds = _followed(query, display, lasting=assignment.lasting)
        assignment.task.finish(query, lasting=assignment.lasting)
        yield TaskOutcome(query, seconds)
    finally:
        with suppress(*GONE):
            if query.isActive:
                query.stop()
        if not assignment.lasting:
            # A worker that cannot be reached any more has nothing to release.
            with suppress(*GONE, Py4JError, AfsparkError):
                query.release()


def _followed(query: Query, display: Display, *, lasting: bool) -> float:
    try:
        return follow(query, display)
    except (AfsparkError, StreamingQueryException) as error:
        own = own_error(error)
        if own is None:
            raise
        raise (with_hint(own, GOES_ON) if lasting else own) from error
