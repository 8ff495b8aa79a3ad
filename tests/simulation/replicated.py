"""Schedules of queries whose workers have secondaries, under any of the six schemes, and change them on the way."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from afspark.coordinator.batch_loop import Coordinator
from afspark.policies import Adaptive
from afspark.policies.replication import SCHEMES, ActiveStandby, HotStandby, Replicated
from tests.simulation import invariants, observe
from tests.simulation.left_out import what_is_missing_was_told
from tests.simulation.replica_world import ReplicaWorld
from tests.simulation.schedule import Schedule, draw, draw_input
from tests.simulation.simulation import Outcome, Simulation
from tests.simulation.world import World

#: How far apart checkpoints are, in batches.
DISTANCES = (1, 2, 3, 50)
#: Of so many schedules one keeps to active standby, and one to hot standby with items in its queue.
KINDS = 4
ACTIVE, HOT = 0, 1
#: How likely one of the others has gap recovery.
GAPS = 0.25
#: What their worlds have more of: hosts that are stopped while primaries are at work; hosts that are killed.
TROUBLES: dict[int, dict[str, Any]] = {
    ACTIVE: {"stops": 0.2, "builds": 0.4, "wakeful": 0.05, "calm": 2},
    HOT: {"stops": 0.01, "whole": 0.9, "calm": 3},
}


class ReplicatedSimulation(Simulation):
    """The same schedules as without, on as many hosts as secondaries need; between two batches schemes change."""

    options = ("--replicas",)

    def __init__(self, seed: int) -> None:
        super().__init__(self.schedule_of(seed))
        self._changes = random.Random(f"transitions-{seed}")
        #: what workers were told to change to, and the last driver that was looked at
        self._wished: list[tuple[int, Replicated]] = []
        self._last_driver = 1
        #: how likely a worker changes its scheme between two batches
        self._restless = 0.0 if seed % KINDS in (ACTIVE, HOT) else self._changes.choice((0.0, 0.3, 0.8))

    def schedule_of(self, seed: int) -> Schedule:
        return replicated(draw(seed))

    def make_world(self, schedule: Schedule) -> World:
        return ReplicaWorld(
            schedule.seed,
            hosts=schedule.hosts,
            failures=schedule.failures,
            rate=schedule.rate,
            **TROUBLES.get(schedule.seed % KINDS, {}),
        )

    def run(self) -> Outcome:
        outcome = super().run()
        if isinstance(self.world, ReplicaWorld):
            outcome.seen = self.world.seen
        assert self.engine is not None
        gaps = [entry.loss.gap_batches for entry in self.engine.ledger.entries()]
        outcome.seen["gap"] += sum(gap > 0 for gap in gaps)
        return outcome

    def compare(self, batch: int) -> float:
        assert self.engine is not None
        invariants.one_primary_counts(self.engine, self.world)
        if isinstance(self.world, ReplicaWorld):
            self._look_at_losses(self.engine, self.world)
        worst = super().compare(batch)
        if self._gaps_are_told and observe.at_home(self.operator_run, batch):
            what_is_missing_was_told(self.engine, self.truth, self.schedule, self.had)
        return worst

    @property
    def _gaps_are_told(self) -> bool:
        """Whether nothing but gaps can be missing, beside what an approximate worker may lose."""
        return all(one.leaves_gap for one in self.had) and not self.world.destroyed

    def _look_at_losses(self, engine: Coordinator, around: ReplicaWorld) -> None:
        if not (self.schedule.switches or self.schedule.unread or self.schedule.rots or self.schedule.corrupts):
            invariants.losses_are_real(engine, around)
        self._schemes_outlive_drivers(around)

    def _schemes_outlive_drivers(self, around: ReplicaWorld) -> None:
        """A driver that has just started goes on with the program's schemes, or with others that there were."""
        driver, self._last_driver = self._last_driver, self.outcome.drivers
        run = self.operator_run
        if driver == self.outcome.drivers or isinstance(run.node.tolerance, Adaptive):
            return
        for worker, unit in run.group.secondaries.units.items():
            if unit.wanted != run.node.tolerance:
                assert (worker, unit.wanted) in self._wished, f"{unit.wanted} of worker {worker} comes from nowhere"
                around.seen["scheme taken up by another driver"] += 1

    @property
    def _has_forgotten(self) -> bool:
        """Or losses have withdrawn one record after the other, until Spark had forgotten what could be replayed."""
        assert self.engine is not None
        entries = self.engine.ledger.entries() if self.schedule.offsets_kept < 100 else []
        unwritten = {name for entry in entries if entry.recovery for name in entry.recovery.damaged}
        return super()._has_forgotten or any(name.startswith("record of batch ") for name in unwritten)

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
                tolerance = replace(scheme(self._changes), gap=run.node.tolerance.leaves_gap)
                self.world.say(f"worker {worker} changes to {tolerance}")
                run.want(tolerance, [worker])
                self._wished.append((worker, tolerance))


class PlainReplicated(ReplicatedSimulation):
    """Secondaries in the world of the other simulations, whose hosts go away and come back with what they had: there
    are fewer promotions, and more damage and restarts before them.
    """

    def schedule_of(self, seed: int) -> Schedule:
        rng, drawn = random.Random(f"replicated-{seed}"), draw(seed)
        tolerance = ActiveStandby(batches=rng.choice(DISTANCES)) if seed % KINDS == ACTIVE else scheme(rng)
        return replace(drawn, tolerance=tolerance, hosts=max(drawn.hosts, drawn.workers, 2))

    def make_world(self, schedule: Schedule) -> World:
        return Simulation.make_world(self, schedule)


def scheme(rng: random.Random) -> Replicated:
    """Any of the six."""
    return rng.choice(SCHEMES)(batches=rng.choice(DISTANCES))


def replicated(schedule: Schedule) -> Schedule:
    """The schedule with a tolerance that has secondaries, or may have some later."""
    rng = random.Random(f"replicated-{schedule.seed}")
    tolerance: Replicated = scheme(rng)
    if schedule.seed % KINDS == ACTIVE:
        tolerance = ActiveStandby(batches=rng.choice(DISTANCES))
        schedule = replace(schedule, relentless=False, hosts=3, failures=rng.choice((2, 3, 5)), rate=0.5)
    elif schedule.seed % KINDS == HOT:
        # Checkpoints are rare, so that items wait, and what is lost is one host, so that its secondary counts.
        # Or they are frequent, and come late.
        distance, lag = rng.choice(((3, 0), (50, 0), (50, 1), (1, 3)))
        tolerance = HotStandby(batches=distance)
        times, batches = draw_input(rng, schedule.combination, schedule.window, rng.choice((5, 6, 8)))
        schedule = replace(
            schedule,
            times=times,
            batches=batches,
            failures=rng.choice((1, 2, 3)),
            relentless=False,
            corrupts=False,
            rots=False,
            stops=0.0,
            switches=False,
            unread=False,
            lag=lag,
            rate=1.0,
            hosts=3,
        )
    elif random.Random(f"gap-{schedule.seed}").random() < GAPS:
        tolerance = replace(tolerance, gap=True)
    return replace(schedule, tolerance=tolerance, hosts=max(schedule.hosts, schedule.workers, rng.choice((2, 3, 3))))
