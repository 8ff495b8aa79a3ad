"""``afspark run``: one algorithm over one finite stream, from checks to summary."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from afspark.api.query import Query
from afspark.cli.algorithm_options import CommandOptions
from afspark.cli.assignment import UNDISTURBED, Assignment, TaskOutcome, finished
from afspark.cli.host_killer import HostKiller
from afspark.cli.host_options import check_second_host, slots_of_hosts, spark_settings
from afspark.cli.host_run import HostRun, pace_of
from afspark.cli.places import RunFolders, check_checkpoint, check_file, check_output, check_savepoint
from afspark.cli.planning import plan
from afspark.cli.progressbar import display_for
from afspark.cli.spark import check_conf, spark_session
from afspark.cli.stored_frames import is_remote, put_frame
from afspark.cli.tasks import task_of, tolerance_of
from afspark.protocol.fault_plan import FaultPlan
from afspark.report.document import RunReport, save_json
from afspark.report.summary import console, summary
from afspark.store.address_schemes import redact


def run(options: CommandOptions) -> int:
    """Carries out ``options``; the exit status. Everything that can be checked is checked before Spark starts."""
    check_conf(dict(options.conf))
    if options.json is not None:
        check_file(options.json, "--json")
    if options.output is not None:
        check_output(options.output)
    task = task_of(options)
    found = plan(*task.sources, workers=options.workers, batch_bytes=options.batch_size, kills=options.kill)
    tolerance = tolerance_of(options)
    faults, hosts = FaultPlan(), None
    if options.hosts is None:
        check_second_host(options, tolerance)
        name = f"{options.kill}-{options.seed}"
        faults = FaultPlan.seeded(options.kill, batches=found.batches, seed=options.seed, name=name)
    else:
        hosts = HostRun.planned(options, slots=slots_of_hosts(options, tolerance), batches=found.batches)
    if options.checkpoint is not None:
        check_checkpoint(options.checkpoint)
    if options.savepoint is not None:
        check_savepoint(options.savepoint, options.checkpoint)
    with RunFolders(options.checkpoint) as workspace:
        assignment = Assignment(
            task=task,
            plan=found,
            tolerance=tolerance,
            workers=options.workers,
            faults=faults,
            checkpoint=workspace.checkpoint,
            lasting=workspace.lasting,
            takeover=options.takeover,
            savepoint=options.savepoint,
        )
        report = _run(options, assignment, workspace, hosts)
    if options.json is not None:
        save_json(options.json, report.to_json())
    task.draw(report)
    if not options.quiet:
        console().print(summary(report))
    return 0


def _run(options: CommandOptions, assignment: Assignment, workspace: RunFolders, hosts: HostRun | None) -> RunReport:
    log = None if options.debug else workspace.log
    with ExitStack() as stack:
        if hosts is None:
            _say(options, "Starting Spark …")
            started = spark_session(options.master, options.conf, workers=options.workers, log=log)
        else:
            _say(options, f"Starting Spark on {len(hosts.names)} hosts …")
            cluster = stack.enter_context(hosts.started(workspace.hosts))
            settings = spark_settings()
            started = spark_session(cluster.url, options.conf, workers=options.workers, log=log, defaults=settings)
        spark = stack.enter_context(started)
        display = stack.enter_context(display_for(quiet=options.quiet))
        beside, killer = UNDISTURBED, None
        if hosts is not None:
            killer = stack.enter_context(hosts.killer(cluster, spark, say=display.note))
            beside = partial(_among_failures, killer)
        outcome = stack.enter_context(finished(spark, assignment, display, label=options.algorithm, beside=beside))
        display.close()
        if not outcome.query.totals.batches:
            _say(options, "The checkpoint has seen all of this input already; these are its results.")
        report = _report(spark, options, assignment, outcome)
        return report if hosts is None or killer is None else replace(report, hosts=hosts.told(killer, report.ledger))


def _among_failures(killer: HostKiller, query: Query) -> AbstractContextManager[None]:
    return killer.watching(partial(pace_of, query))


def _report(spark: SparkSession, options: CommandOptions, assignment: Assignment, outcome: TaskOutcome) -> RunReport:
    task = assignment.task
    results = task.results(outcome.query, assignment.checkpoint).persist()
    try:
        extras: dict[str, Any] = {"results": results.count(), "top": task.top(results, options.top)}
        extras |= {"learned": task.learned(outcome.query), **task.told(outcome.query)}
        if options.output is not None and is_remote(options.output):
            put_frame(results, options.output)
        elif options.output is not None:
            results.write.mode("overwrite").parquet(options.output)
        if options.verify:
            _say(options, "Counting exactly …")
            started = time.perf_counter()
            judgement = task.verify(results, outcome.query, assignment.plan, options.workers)
            extras |= {
                "observed": judgement.observed,
                "accuracy": judgement.accuracy,
                "verify_seconds": time.perf_counter() - started,
            }
    finally:
        results.unpersist()
    given = asdict(options)
    # Addresses may hold keys.
    named = {name: redact(given[name]) for name in ("checkpoint", "savepoint", "output") if given[name]}
    settings = (
        given
        | named
        | {
            "theta": assignment.tolerance.to_json().get("theta"),
            "batch_size": assignment.plan.batch_bytes,
            "planned_batches": assignment.plan.batches,
            "master": spark.sparkContext.master,
            "operator": task.operator.fingerprint(),
            "source": task.source.to_json(),
            "sources": [source.to_json() for source in task.sources],
        }
    )
    return outcome.report(assignment, settings=settings, **extras)


def _say(options: CommandOptions, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr, flush=True)
