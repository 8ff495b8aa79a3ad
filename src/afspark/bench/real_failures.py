"""Failures of hosts that really happen: a process or a host is killed, a host is frozen, or cut off."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum

from afspark.bench.bench_hosts import BenchHosts
from afspark.cluster.loopback.host_processes import processes_of


class RealFailure(StrEnum):
    """What happens to the host of a primary."""

    #: the executor and its Python processes die; the resident state of the host stays
    PROCESS_KILLED = "process killed"
    #: everything on the host is gone at once, the resident state as well
    HOST_KILLED = "host killed"
    #: all processes of the host stand still, and their connections stay open
    FROZEN = "host frozen"
    #: all packets from and to the host are dropped
    CUT = "network cut"


def possible(hosts: BenchHosts, among: Iterable[RealFailure] = RealFailure) -> list[RealFailure]:
    """Those of the failures that this machine allows."""
    return [one for one in among if one is not RealFailure.CUT or hosts.network.can_cut]


def fail(hosts: BenchHosts, host: str, failure: RealFailure) -> None:
    """Makes it happen to ``host``, at once."""
    match failure:
        case RealFailure.PROCESS_KILLED:
            for pid in hosts.cluster.executors(host):
                os.kill(pid, signal.SIGKILL)
        case RealFailure.HOST_KILLED:
            # Before its state goes, which takes a while, all of its processes have to be dead.
            _signal_all(hosts, host, signal.SIGKILL)
            hosts.cluster.kill(host)
        case RealFailure.FROZEN:
            _signal_all(hosts, host, signal.SIGSTOP)
        case RealFailure.CUT:
            hosts.network.cut(host)


def mend(hosts: BenchHosts, host: str, failure: RealFailure) -> None:
    """Begins to bring the host back: it is started, wakes up, or is connected."""
    match failure:
        case RealFailure.HOST_KILLED:
            hosts.cluster.start(host)
        case RealFailure.FROZEN:
            _signal_all(hosts, host, signal.SIGCONT)
        case RealFailure.CUT:
            hosts.network.mend(host)


def _signal_all(hosts: BenchHosts, host: str, number: signal.Signals) -> None:
    for pid in list(processes_of(hosts.cluster.session(host))):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
