"""What a worker and its secondary take of CPU, memory and network while nothing fails, and what that costs in speed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import afspark as af
from afspark.bench.bench_hosts import BenchHosts
from afspark.bench.host_usage import HostUsage, folder_bytes, usage_of
from afspark.bench.replica_case import ReplicaCase, wait_for_batches, wait_for_scheme, wait_until
from afspark.policies.replication import Replicated

#: Python processes, JIT and caches are warm after so many batches.
_WARM = 8


@dataclass(frozen=True)
class _Reading:
    """What every host had taken at a moment."""

    at: float
    items: int
    usage: dict[str, HostUsage]
    received: dict[str, int]
    sent: dict[str, int]

    @classmethod
    def of(cls, hosts: BenchHosts, query: af.Query) -> _Reading:
        names, network = hosts.cluster.hosts, hosts.network
        return cls(
            time.monotonic(),
            query.totals.items,
            {host: usage_of(hosts.cluster.session(host)) for host in names},
            {host: network.received(host) for host in names},
            {host: network.sent(host) for host in names},
        )


def what_it_takes(hosts: BenchHosts, case: ReplicaCase, tolerance: af.Tolerance, seconds: float) -> dict[str, float]:
    """CPU of the primary's host and of that with the secondary, memory, network and throughput, over so many seconds.

    CPU is in seconds a second, network in bytes a record. Where a scheme has no secondary, the host that has taken most
    besides the primary's stands for it.
    """
    hosts.complete()
    with case.running(hosts, tolerance) as query:
        wait_for_batches(query, _WARM)
        if isinstance(tolerance, Replicated):
            wait_for_scheme(query, tolerance)
            wait_for_batches(query, _WARM)
        before = _Reading.of(hosts, query)
        batches, alarms = query.totals.batches, len(query._cluster.failures())
        wait_until(query, lambda: time.monotonic() >= before.at + seconds, 2 * seconds)
        after = _Reading.of(hosts, query)
        primary = query.tolerance()[0]["host"]
        others = [host for host in hosts.cluster.hosts if host != primary]
        state = {host: folder_bytes(hosts.state_of(host)) for host in hosts.cluster.hosts}
        taken = after.at - before.at
        cpu = {host: after.usage[host].since(before.usage[host]) / taken for host in hosts.cluster.hosts}
        secondary = max(others, key=lambda host: (state[host], cpu[host]))
        items = after.items - before.items
        recent = [batch["seconds"] for batch in query.recentProgress[-(query.totals.batches - batches) :]]
        return {
            "records_per_second": items / taken,
            "batch": statistics.median(recent) if recent else 0.0,
            # Nothing fails: whoever is missed was busy.
            "alarms": float(len(query._cluster.failures()) - alarms),
            "primary_cpu": cpu[primary],
            "secondary_cpu": cpu[secondary],
            "all_cpu": sum(cpu.values()),
            "cpu_per_million": sum(cpu.values()) * taken / max(items, 1) * 1e6,
            "primary_state": float(state[primary]),
            "secondary_state": float(state[secondary]),
            "secondary_python": float(after.usage[secondary].python_bytes),
            "received_per_record": (after.received[secondary] - before.received[secondary]) / max(items, 1),
            "sent_per_record": (after.sent[primary] - before.sent[primary]) / max(items, 1),
        }
