"""Random graphs whose operators, or some of them, have secondaries, under schemes that change on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from afspark.policies import Adaptive
from tests.simulation import invariants
from tests.simulation.adaptive import DecisionsHeard, adaptive
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.graphs import Graphs, Plan, draw_graph
from tests.simulation.measured_cluster import Load, MeasuredCluster
from tests.simulation.replica_world import ReplicaWorld
from tests.simulation.replicated import scheme
from tests.simulation.schedule import Schedule
from tests.simulation.simulation import Outcome

#: How likely an exact operator of a graph has one of the six schemes.
SHARE = 0.7
#: How likely the controller chooses that scheme.
LIMITED = 0.3


class ReplicatedGraphs(Graphs):
    """The graphs of `Graphs` with other policies, on two hosts at least."""

    options = ("--replicated-graphs",)

    def __init__(self, seed: int) -> None:
        self._load, self._heard = Load(seed), DecisionsHeard()
        super().__init__(seed, replicated_plans(seed), hosts=3)
        self._changes = random.Random(f"graph-transitions-{seed}")
        #: how likely a worker changes its scheme between two batches
        self._restless = self._changes.choice((0.0, 0.3, 0.8))

    def make_world(self, schedule: Schedule) -> ReplicaWorld:
        given = {"hosts": schedule.hosts, "failures": schedule.failures, "rate": schedule.rate}
        return ReplicaWorld(schedule.seed, **given, stops=0.05, whole=0.6, calm=2)

    def make_cluster(self) -> SimulatedCluster:
        self.world.now += self._load.seconds()
        return MeasuredCluster(self.world, self._load, lag=self.schedule.lag)

    def compare(self, batch: int) -> float:
        assert self.engine is not None
        invariants.one_primary_counts(self.engine, self.world)
        self._heard.look(self.engine, self.outcome.drivers)
        return super().compare(batch)

    def run(self) -> Outcome:
        outcome: Outcome = super().run()
        assert isinstance(self.world, ReplicaWorld)
        outcome.seen = self.world.seen
        outcome.seen.update(self._heard.counted())
        return outcome

    def _begin(self, batch: int, read: int) -> None:
        self._load.new_batch()
        super()._begin(batch, read)
        if self.engine is None or len(self.world.slots) < 2:
            return
        for run in self.engine.runs:
            if isinstance(run.node.tolerance, Adaptive):
                continue
            for worker in run.group.secondaries.units:
                if self._changes.random() < self._restless:
                    tolerance = scheme(self._changes)
                    self.world.say(f"worker {worker} of {run.name} changes to {tolerance}")
                    run.want(tolerance, [worker])


def replicated_plans(seed: int) -> Sequence[Plan]:
    """The operators of a graph, some of them under schemes with secondaries, or with a limit for recovery instead."""
    rng = random.Random(f"replicated-graph-{seed}")

    def planned(plan: Plan) -> Plan:
        changes = plan.tolerance.exact and not plan.tolerance.takes_all_back and rng.random() < SHARE
        if not changes:
            return plan
        return replace(plan, tolerance=adaptive(rng) if rng.random() < LIMITED else scheme(rng))

    return [planned(plan) for plan in draw_graph(seed)]
