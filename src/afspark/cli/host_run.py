"""A run on hosts of its own: started before Spark, killed and started again while the query runs, and stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from afspark.api.query import Query
from afspark.cli.algorithm_options import CommandOptions
from afspark.cli.host_killer import HostKiller, QueryPace, with_recoveries
from afspark.cli.signals import heeding_stops, stop_at_once
from afspark.cluster.loopback.host_failures import (
    AWAY_SECONDS,
    FailureSchedule,
    PlannedFailure,
    seeded_host_failures,
)
from afspark.cluster.loopback.loopback_cluster import LoopbackCluster, check_addresses, host_names
from afspark.cluster.spark.anchors import slots_by_host
from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class HostRun:
    """The hosts of a run, and which of them fail when."""

    names: tuple[str, ...]
    slots: int
    away_seconds: float
    failures: tuple[PlannedFailure, ...]

    @classmethod
    def planned(cls, options: CommandOptions, *, slots: int, batches: int) -> HostRun:
        """What ``options`` ask for; UsageError if this machine has no such hosts, or the failures do not fit."""
        assert options.hosts is not None
        names = host_names(options.hosts)
        check_addresses(names)
        if SparkSession.getActiveSession() is not None:
            raise UsageError("--hosts needs a Spark of its own, and this process has one.", remedy="Stop it first.")
        return cls(
            names=names,
            slots=slots,
            away_seconds=AWAY_SECONDS if options.away is None else options.away,
            failures=seeded_host_failures(options.kill, batches=batches, hosts=options.hosts, seed=options.seed),
        )

    @contextmanager
    def started(self, folder: Path) -> Iterator[LoopbackCluster]:
        """The hosts, for as long as the block lasts; a signal ends it in an orderly way."""
        with heeding_stops(stop_at_once), LoopbackCluster(self.names, slots=self.slots, folder=folder) as cluster:
            yield cluster

    def killer(self, cluster: LoopbackCluster, spark: SparkSession, say: Callable[[str], None]) -> HostKiller:
        """What kills the hosts as planned."""
        schedule = FailureSchedule(self.names, self.failures, self.away_seconds)
        return HostKiller(cluster, schedule, alive=partial(slots_by_host, spark.sparkContext), say=say)

    def told(self, killer: HostKiller, ledger: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a report says of the hosts."""
        return {
            "names": list(self.names),
            "slots": self.slots,
            "away_seconds": self.away_seconds,
            "wanted": len(self.failures),
            "kills": with_recoveries(killer.kills, ledger),
        }


def pace_of(query: Query) -> QueryPace:
    """How far a query is."""
    totals = query.totals
    return QueryPace(totals.batches, totals.seconds)
