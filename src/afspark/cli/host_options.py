"""What ``--hosts`` asks for, checked before anything is started, and what Spark is told about such hosts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from afspark.cli.algorithm_options import CommandOptions
from afspark.errors import UsageError
from afspark.policies import Tolerance

#: A JVM of an executor holds no state of ours; Spark refuses much less.
EXECUTOR_MEMORY = "512m"


def slots_of_hosts(options: CommandOptions, tolerance: Tolerance) -> int:
    """Task slots of each host; UsageError if they are too few.

    By default as many as there are workers: a host can then take all of them when the others are gone, and two hosts
    have room for a secondary of each.
    """
    assert options.hosts is not None
    slots = options.host_slots if options.host_slots is not None else options.workers
    if tolerance.has_secondaries and options.hosts < 2:
        raise UsageError(
            "A secondary has to be on another host than its primary, and there is 1 host.",
            remedy="Use --hosts 2 or more, or a tolerance without secondaries.",
            hosts=options.hosts,
        )
    needed = options.workers * (2 if tolerance.has_secondaries else 1)
    if options.hosts * slots < needed:
        who = f"{options.workers} workers{' and their secondaries' if tolerance.has_secondaries else ''}"
        total = options.hosts * slots
        raise UsageError(
            f"{who} need {needed} task slots, and {options.hosts} hosts with {slots} each have {total}.",
            remedy=f"Use --host-slots {-(-needed // options.hosts)} or more, or fewer --workers.",
            slots=slots,
            workers=options.workers,
        )
    return slots


def check_second_host(options: CommandOptions, tolerance: Tolerance) -> None:
    """Raises UsageError if a run without ``--hosts`` is on this machine alone, and ``tolerance`` needs two hosts."""
    master = options.master or dict(options.conf).get("spark.master") or os.environ.get("SPARK_MASTER", "local")
    if tolerance.has_secondaries and re.fullmatch(r"local(\[.*\])?", master):
        raise UsageError(
            f"--tolerance {options.tolerance} needs two hosts, and this run has one.",
            remedy="Use --hosts 2 or more, or a cluster as --master.",
            hosts=1,
        )


def spark_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Spark settings of a driver whose hosts are on this machine; users' own go before them."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.executor.extraJavaOptions": environ.get("SPARK_SUBMIT_OPTS", ""),
        # What hosts send each other stays on this machine.
        "spark.shuffle.compress": "false",
    }
