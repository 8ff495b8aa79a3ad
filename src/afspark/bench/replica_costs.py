"""Runs of one worker on hosts of this machine: what its secondary takes, and how long recoveries take."""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.host_usage import HostUsage, folder_bytes, loopback_bytes, usage_of
from afspark.bench.streams import WARM_BATCHES
from afspark.bench.topology import RECORD_BYTES, one_aggregate
from afspark.cluster.loopback.host_processes import processes_of
from afspark.cluster.loopback.loopback_cluster import LoopbackCluster
from afspark.policies.replication import SCHEMES, Replicated

#: A frozen host wakes up after this, whatever has become of its workers: a limit of the experiment.
FROZEN_SECONDS = 30.0
#: After a failure so many batches follow at least, so that there is a next one to wait for.
BATCHES_AFTER = 6
_LOOK_SECONDS = 0.01


def schemes_with_secondaries() -> dict[str, type[Replicated]]:
    """The tolerances that keep a secondary, by name: all that the engine has."""
    return {kind.name: kind for kind in SCHEMES if kind.has_secondaries}


@dataclass(frozen=True)
class ReplicaCase:
    """One worker that aggregates by ``keys`` keys, in batches of ``batch_records``."""

    keys: int
    batch_records: int
    batches: int

    @contextmanager
    def running(self, hosts: BenchHosts, tolerance: af.Tolerance) -> Iterator[af.Query]:
        """The query, while it runs; at the end of the block it is stopped, and what it has left is removed."""
        checkpoint = tempfile.mkdtemp(prefix="afspark-bench-")
        records = self.batches * self.batch_records
        writer = one_aggregate(hosts.spark, tolerance, records=records, keys=self.keys)
        writer = writer.option("checkpointLocation", checkpoint).option("batchBytes", self.batch_records * RECORD_BYTES)
        query = writer.trigger(availableNow=True).start()
        try:
            yield query
            query.stop()
            query.release()
        finally:
            with suppress(Exception):
                query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)


def what_it_takes(hosts: BenchHosts, case: ReplicaCase, tolerance: af.Tolerance) -> dict[str, float]:
    """CPU of the primary's host and of the busiest other one, memory, network and throughput, while nothing fails.

    The first batches, in which Spark and Python start, are left out. CPU is in seconds for each second of the primary's
    batches, network in bytes a record.
    """
    hosts.complete()
    cluster = hosts.cluster
    with case.running(hosts, tolerance) as query:
        _await(query, lambda: query.totals.batches >= WARM_BATCHES)
        before, bytes_before, started = _usage(cluster), loopback_bytes(), time.monotonic()
        items_before = query.totals.items
        query.awaitTermination()
        taken = time.monotonic() - started
        items = query.totals.items - items_before
        after = _usage(cluster)
        network = loopback_bytes() - bytes_before
        primary = query.tolerance()[0]["host"]
        others = {host for host in cluster.hosts if host != primary}
        cpu = {host: after[host].since(before[host]) for host in cluster.hosts}
        state = {host: folder_bytes(hosts.state_of(host)) for host in cluster.hosts}
        secondary = max(others, key=lambda host: (state[host], cpu[host]))
    return {
        "records_per_second": items / taken,
        "primary_cpu": cpu[primary],
        "secondary_cpu": cpu[secondary],
        "secondary_cpu_share": cpu[secondary] / cpu[primary] if cpu[primary] else 0.0,
        "primary_state": float(state[primary]),
        "secondary_state": float(state[secondary]),
        "secondary_python": float(after[secondary].python_bytes),
        "network_per_record": network / items if items else 0.0,
    }


def _usage(cluster: LoopbackCluster) -> dict[str, HostUsage]:
    return {host: usage_of(cluster.session(host)) for host in cluster.hosts}


# --- failures ----------------------------------------------------------------------------------------------


def kill_process(hosts: BenchHosts, host: str) -> None:
    """The executor is killed; the resident state stays."""
    for pid in hosts.cluster.executors(host):
        os.kill(pid, signal.SIGKILL)


def kill_host(hosts: BenchHosts, host: str) -> None:
    """Everything on the host is gone at once, the resident state as well."""
    hosts.cluster.kill(host)


def freeze_host(hosts: BenchHosts, host: str) -> None:
    """All processes of the host stand still, and their connections stay open."""
    _signal_all(hosts, host, signal.SIGSTOP)


def _signal_all(hosts: BenchHosts, host: str, number: signal.Signals) -> None:
    for pid in list(processes_of(hosts.cluster.session(host))):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


FAILURES: Mapping[str, Callable[[BenchHosts, str], None]] = {
    "process killed": kill_process,
    "host killed": kill_host,
    "host frozen": freeze_host,
}


def recovery_after(
    hosts: BenchHosts, case: ReplicaCase, tolerance: af.Tolerance, failure: str, seed: int
) -> dict[str, float]:
    """How long after a failure of the primary's host the next batch was applied.

    The moment is drawn from the seed: a batch in the first half, and a part of the time that one takes. ``recovery`` is
    from the failure to the end of the batch that was at work; ``delay`` is that without the rest of a usual batch;
    ``detection`` is from the failure to the loss in the ledger, 0 if no state was lost. ``late``: it was not back within
    the time for which a host is frozen.
    """
    hosts.complete()
    draw = random.Random(seed)
    wanted, share = draw.randrange(WARM_BATCHES, max(WARM_BATCHES + 1, case.batches - BATCHES_AFTER)), draw.random()
    with case.running(hosts, tolerance) as query:
        ends = _await(query, lambda: query.totals.batches >= wanted)
        usual = statistics.median(ends[WARM_BATCHES - 1 :]) if len(ends) >= WARM_BATCHES else 0.0
        time.sleep(share * usual)
        host = query.tolerance()[0]["host"]
        done, at, wall = query.totals.batches, time.monotonic(), time.time()
        FAILURES[failure](hosts, host)
        try:
            _await(query, lambda: query.totals.batches > done or time.monotonic() > at + FROZEN_SECONDS)
            late = query.totals.batches == done
        finally:
            _signal_all(hosts, host, signal.SIGCONT)
        _await(query, lambda: query.totals.batches > done)
        recovery = time.monotonic() - at
        losses = [entry for entry in query.ledger() if entry["at"] >= wall]
    return {
        "recovery": recovery,
        "delay": max(0.0, recovery - (1 - share) * usual),
        "batch": usual,
        "detection": max((entry["at"] - wall for entry in losses), default=0.0),
        "losses": float(len(losses)),
        "promoted": float(sum(entry["restore_seconds"] == 0.0 for entry in losses)),
        "late": float(late),
    }


def _await(query: af.Query, done: Callable[[], bool]) -> list[float]:
    """Waits until something is so, or the query has ended; the seconds of the batches that ended meanwhile."""
    seconds: list[float] = []
    batches, since = query.totals.batches, time.monotonic()
    while not done():
        now = query.totals.batches
        if now > batches:
            seconds.append((time.monotonic() - since) / (now - batches))
            batches, since = now, time.monotonic()
        if query.awaitTermination(_LOOK_SECONDS):
            break
    return seconds
