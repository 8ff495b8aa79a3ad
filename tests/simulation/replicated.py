"""Schedules of queries whose workers have secondaries: copies that follow on other hosts, and are promoted."""

from __future__ import annotations

import random
from dataclasses import replace

from afspark.policies.replication import ActiveStandby, ColdStandby
from tests.simulation.schedule import Schedule, draw
from tests.simulation.simulation import Simulation


class Replicated(Simulation):
    """The same schedules as without, on as many hosts as secondaries need."""

    options = ("--replicas",)

    def __init__(self, seed: int) -> None:
        super().__init__(replicated(draw(seed)))


def replicated(schedule: Schedule) -> Schedule:
    """The schedule with a tolerance that has secondaries."""
    rng = random.Random(f"replicated-{schedule.seed}")
    kind = rng.choice((ActiveStandby, ColdStandby))
    tolerance = kind(batches=rng.choice((1, 2, 3, 50)))
    return replace(schedule, tolerance=tolerance, hosts=max(schedule.hosts, schedule.workers, 2))
