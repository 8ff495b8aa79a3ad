"""Hosts that are new to a query are prepared before anybody has to be restored there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from afspark.cluster.cluster import HostTask, StageFailed
from afspark.coordinator.replicas import warm_hosts
from afspark.coordinator.replicas.warm_hosts import WarmHosts
from afspark.policies import BarrierSnapshot, PassiveReplication
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts

SLOTS = {"a": 2, "b": 2, "c": 2}


class Prepared(Hosts):
    """Notes on which hosts Python was started for nobody in particular."""

    def __init__(self) -> None:
        super().__init__(dict(SLOTS))
        self.prepared: list[str] = []
        self.fails = False

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        if task is warm_hosts._say_where:
            if self.fails:
                raise StageFailed("an executor died")
            self.prepared += hosts.values()
        return super().run_on(hosts, task)


def test_a_host_that_comes_back_is_prepared_once() -> None:
    hosts = Prepared()
    warm = WarmHosts(hosts)
    warm.look()
    assert hosts.prepared == [], "the search for states was there"
    slots = hosts.slots.pop("c")
    warm.look()
    hosts.slots["c"] = slots
    for _ in range(3):
        warm.look()
    assert hosts.prepared == ["c"]
    # It was away for no longer than from one look to the next.
    hosts.silent.add("a")
    failures = hosts.failures()
    hosts.silent.clear()
    hosts.failures = lambda: failures  # type: ignore[method-assign]
    for _ in range(3):
        warm.look()
    assert hosts.prepared == ["c", "a"]


def test_what_has_failed_is_tried_again() -> None:
    hosts = Prepared()
    warm = WarmHosts(hosts)
    warm.look()
    hosts.slots["d"], hosts.fails = 2, True
    warm.look()
    warm.look()
    assert hosts.prepared == []
    hosts.fails = False
    for _ in range(3):
        warm.look()
    assert hosts.prepared == ["d"]


@pytest.mark.parametrize(("tolerance", "prepared"), [(PassiveReplication(batches=2), ["c"]), (BarrierSnapshot(), [])])
def test_only_where_workers_are_restored_elsewhere(make_rig: MakeRig, tolerance: Any, prepared: list[str]) -> None:
    rig, truth = make_rig(batches=6, tolerance=tolerance)
    hosts = rig.hosts = Prepared()
    slots = hosts.slots.pop("c")
    rig.go(2)
    hosts.slots["c"] = slots
    rig.go()
    assert hosts.prepared == prepared
    assert rig.counts() == truth
