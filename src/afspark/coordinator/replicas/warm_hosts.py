"""Starts Python on hosts that are new to a query, before anybody has to be restored there.

The first task on an executor starts a Python process, which imports the engine and its kernels: seconds that a lost
worker would wait for. Hosts that come back have new executors. Nothing of an operator is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.task_environment import TaskEnvironment

LOG = logging.getLogger("afspark")


class WarmHosts:
    """The hosts of a cluster on which a task of this query has run since they are there."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: and when, by the clock that never goes back; None: a starting query has just searched all hosts for states
        self._warm: dict[str, float] | None = None
        self._work: BackgroundWrite | None = None
        self._begun = 0.0
        self._found: list[str] = []

    def look(self) -> None:
        """Begins to have a task run on every host where none has; nobody waits for it."""
        hosts, now = self._cluster.slots_by_host(), self._cluster.clock.monotonic()
        if self._warm is None:
            self._warm = dict.fromkeys(hosts, now)
        if self._work is not None and not self._work.wait(0):
            return
        self._heard(self._work)
        self._warm |= dict.fromkeys(self._found, self._begun)
        self._found = []
        failed = {one.host: one.noticed for one in self._cluster.failures()}
        self._warm = {
            host: since for host, since in self._warm.items() if host in hosts and failed.get(host, since) <= since
        }
        if cold := sorted(hosts.keys() - self._warm.keys()):
            self._begun = now
            self._work = self._cluster.in_background(partial(self._warm_up, cold))

    def _heard(self, work: BackgroundWrite | None) -> None:
        self._work, failure = None, None if work is None else work.failure
        if isinstance(failure, Exception):
            LOG.debug("Hosts could not be prepared: %s", failure)
        elif failure is not None:
            raise failure

    def _warm_up(self, hosts: list[str]) -> None:
        self._found = self._cluster.run_on(dict(enumerate(hosts)), _say_where)


def _say_where(environment: TaskEnvironment, _: int) -> Iterator[str]:
    yield environment.host
