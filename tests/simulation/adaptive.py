"""Schedules of queries whose schemes the controller chooses, by measurements that vary, while hosts are killed, stopped
and woken, and drivers come and go.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from afspark.control.schemes import Unreplicated, protection
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.replicas.scheme_change import tolerance_for
from afspark.policies import Adaptive, Costs, Tolerance
from afspark.policies.adaptive import ChosenApproximation
from tests.simulation.measured_cluster import Load, MeasuredCluster
from tests.simulation.replica_world import ReplicaWorld
from tests.simulation.replicated import ReplicatedSimulation
from tests.simulation.schedule import Schedule, draw, draw_input
from tests.simulation.simulation import Outcome

Decisions = Sequence[dict[str, Any]]


class AdaptiveSimulation(ReplicatedSimulation):
    """The schedules of `ReplicatedSimulation`, longer, with limits and costs instead of schemes."""

    options = ("--adaptive",)

    def __init__(self, seed: int) -> None:
        self._load, self._heard = Load(seed), DecisionsHeard()
        super().__init__(seed)
        self._restless = 0.0

    def schedule_of(self, seed: int) -> Schedule:
        rng, schedule = random.Random(f"adaptive-{seed}"), draw(seed)
        times, batches = draw_input(rng, schedule.combination, schedule.window, rng.choice((6, 8, 10)))
        return replace(
            schedule,
            tolerance=promising(adaptive(rng), random.Random(f"promise-{seed}"), schedule.theta),
            times=times,
            batches=batches,
            hosts=max(schedule.workers, rng.choice((2, 3, 3))),
            relentless=False,
            stops=rng.choice((0.0, 0.0, 0.15)),
        )

    def make_world(self, schedule: Schedule) -> ReplicaWorld:
        given = {"hosts": schedule.hosts, "failures": schedule.failures, "rate": schedule.rate / 2}
        return ReplicaWorld(schedule.seed, **given, stops=0.08, whole=0.5, calm=2)

    def make_cluster(self) -> MeasuredCluster:
        # A driver takes its time to start as well: no two have decided anything at the same moment.
        self.world.now += self._load.seconds()
        return MeasuredCluster(self.world, self._load, lag=self.schedule.lag)

    def _begin(self, batch: int, read: int) -> None:
        self._load.new_batch()
        super()._begin(batch, read)

    def compare(self, batch: int) -> float:
        assert self.engine is not None
        self._heard.look(self.engine, self.outcome.drivers)
        return super().compare(batch)

    def run(self) -> Outcome:
        outcome = super().run()
        outcome.seen.update(self._heard.counted())
        assert self.engine is not None
        losses = [entry.loss for entry in self.engine.ledger.entries()]
        outcome.seen["lost while approximate"] += sum(loss.counted and max(loss.theta.values()) > 0 for loss in losses)
        return outcome


class DecisionsHeard:
    """What drivers have told of decisions so far."""

    def __init__(self) -> None:
        #: by time, operator and worker: the driver that was the first to tell of it, and what it is
        self._known: dict[tuple[float, str, int], tuple[int, dict[str, Any]]] = {}
        self._inherited = 0
        self._driver = 0

    def look(self, engine: Coordinator, driver: int) -> None:
        """Looks at what a driver, by its number, tells of decisions, and at what it does."""
        told = engine.control.decisions()
        for one in told:
            key = one["at"], one["operator"], one["worker"]
            first, known = self._known.setdefault(key, (driver, one))
            assert known == one, f"what was decided at {key} is told in two ways"
            self._inherited += first < driver and driver != self._driver
            assert one["changes"] and one["reason"], f"what was decided at {key} has no reason"
            assert one["to"] in {candidate["protection"] for candidate in one["candidates"]}
        self._driver = driver
        for run in engine.runs:
            if not isinstance(run.node.tolerance, Adaptive):
                continue
            for worker in run.homes:
                own = [one for one in told if (one["operator"], one["worker"]) == (run.name, worker)]
                _follow_each_other(own)
                assert own, f"nothing was decided for {run.name}/{worker}"
                wanted = _decided(run.node.tolerance, own[-1])
                found = run.group.secondaries.units[worker].wanted
                assert found == wanted, f"{run.name}/{worker} has {found}, and {wanted} was decided"

    def counted(self) -> dict[str, int]:
        found = [one for _, one in self._known.values()]
        changes = [one for one in found if one["from"] not in (None, one["to"])]
        return {
            "scheme changed by the controller": len(changes),
            "decision taken up by another driver": self._inherited,
            **{f"chosen: {one}": sum(found["to"] == one for found in changes) for one in {c["to"] for c in changes}},
        }


def _decided(adaptive: Adaptive, decision: Mapping[str, Any]) -> Tolerance:
    """What has to be in force after a decision."""
    if decision["to"] == Unreplicated.APPROXIMATE:
        assert adaptive.theta is not None, "an error was allowed that nobody has offered"
        return ChosenApproximation(adaptive.theta)
    return tolerance_for(protection(decision["to"]), decision["interval"], gap=adaptive.gap)


def _follow_each_other(decisions: Decisions) -> None:
    for before, after in pairwise(decisions):
        assert after["before"] is not None, f"what was decided at {after['at']} is not the first decision"
        had = after["before"]["protection"], after["before"]["interval"]
        assert had == (before["to"], before["interval"]), f"{had} is followed by what was decided at {after['at']}"
        assert before["at"] <= after["at"]


def adaptive(rng: random.Random) -> Adaptive:
    """Limits, costs and looks at them."""
    costs = {name: rng.choice((0, 1, 10)) for name in ("cpu", "memory", "network", "hosts")}
    return Adaptive(
        recovery_seconds=rng.choice((0.05, 0.5, 2.0, 5.0, 20.0, 60.0)),
        costs=Costs(**costs),
        every=rng.choice((0.001, 0.5)),
        cooldown=rng.choice((0.0, 0.0, 1.0, 10.0)),
    )


def promising(tolerance: Adaptive, rng: random.Random, theta: float) -> Adaptive:
    """Some allow an error as well, of nothing up to anything, and some a gap, or both."""
    return replace(
        tolerance,
        gap=rng.random() < 0.25,
        theta=rng.choice((None, None, 0.0, theta, theta, 1e9)),
    )
