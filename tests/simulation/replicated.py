"""Schedules of queries whose workers have secondaries, under any of the six schemes, and change them on the way."""

from __future__ import annotations

import random
from dataclasses import replace

from afspark.policies.replication import SCHEMES, ActiveStandby, Replicated
from tests.simulation.schedule import Schedule, draw
from tests.simulation.simulation import Simulation

#: How far apart checkpoints are, in batches.
DISTANCES = (1, 2, 3, 50)
#: Every so many-th schedule keeps to active standby.
STEADY = 4


class ReplicatedSimulation(Simulation):
    """The same schedules as without, on as many hosts as secondaries need; between two batches schemes change."""

    options = ("--replicas",)

    def __init__(self, seed: int) -> None:
        super().__init__(replicated(draw(seed)))
        self._changes = random.Random(f"transitions-{seed}")
        #: how likely a worker changes its scheme between two batches
        self._restless = 0.0 if seed % STEADY == 0 else self._changes.choice((0.0, 0.3, 0.8))

    def _begin(self, batch: int, read: int) -> None:
        super()._begin(batch, read)
        if self.engine is None or not self.engine.runs or len(self.world.slots) < 2:
            return
        run = self.operator_run
        if not run.group.secondaries.can_have_some:
            # Its user has started it with another policy.
            return
        for worker in range(self.schedule.workers):
            if self._changes.random() < self._restless:
                tolerance = scheme(self._changes)
                self.world.say(f"worker {worker} changes to {tolerance}")
                run.want(tolerance, [worker])


def scheme(rng: random.Random) -> Replicated:
    """Any of the six."""
    return rng.choice(SCHEMES)(batches=rng.choice(DISTANCES))


def replicated(schedule: Schedule) -> Schedule:
    """The schedule with a tolerance that has secondaries, or may have some later."""
    rng = random.Random(f"replicated-{schedule.seed}")
    steady = schedule.seed % STEADY == 0
    tolerance = ActiveStandby(batches=rng.choice(DISTANCES)) if steady else scheme(rng)
    return replace(schedule, tolerance=tolerance, hosts=max(schedule.hosts, schedule.workers, 2))
