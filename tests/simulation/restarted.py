"""Schedules whose drivers come back with other tolerances, at hosts of which one may be away: any of the six schemes,
the controller, with an error allowed and without a replay. And the same where items come from a DataFrame, whose rows
Spark divides otherwise each time that it hands over a batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from afspark.cluster.local.local_frame import LocalFrame
from afspark.cluster.remade_frame import RemadeFrame
from afspark.coordinator.batch_loop import Coordinator
from afspark.graph.pipeline import Pipeline
from afspark.graph.stream_frame import StreamFrame
from afspark.policies import Adaptive, Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.policies.replication import SCHEMES, Followed, Replicated
from tests.simulation.adaptive import adaptive
from tests.simulation.measured_cluster import Load, MeasuredCluster
from tests.simulation.program import Adding
from tests.simulation.replica_world import ReplicaWorld
from tests.simulation.replicated import ReplicatedSimulation
from tests.simulation.schedule import Schedule, as_arrow, draw, draw_input
from tests.simulation.simulation import Simulation

#: Of so many schedules one has exact tolerances alone, one allows errors, one replays nothing, and one has any.
KINDS = 4
EXACT, LIMITED, GAP, ANY = range(KINDS)
#: A streaming DataFrame that nobody looks at: the schedule hands over its batches.
NO_FRAME: Any = None

Drawn = Callable[[], Tolerance]


def scheme(rng: random.Random, *, gap: bool = False) -> Replicated:
    """Any of the six, with checkpoints by batches, seconds or items."""
    kind = rng.choice(SCHEMES)
    distances: list[dict[str, Any]] = [{"batches": one} for one in (1, 2, 3, 50)]
    distances += [{"interval": rng.choice((0.01, 0.5, 3.0, 1e6))}, {"items": rng.choice((1, 5, 30))}]
    more: dict[str, Any] = {"store_every": rng.choice((1, 2, 8))} if issubclass(kind, Followed) else {}
    return kind(**rng.choice(distances), **more, gap=gap)


def tolerance(rng: random.Random, kind: int, theta: float) -> Tolerance:
    """One of those that a schedule of that kind may have."""

    def chosen(**given: Any) -> Adaptive:
        return replace(adaptive(rng), **given)

    def precise() -> Tolerance:
        return scheme(rng)

    def gap() -> Tolerance:
        return scheme(rng, gap=True)

    exact: list[Drawn] = [precise, precise, precise, chosen, chosen, MiniBatch, lambda: BarrierSnapshot(batches=2)]
    limited: list[Drawn] = [lambda: chosen(theta=theta), lambda: chosen(theta=theta), lambda: Approximate(theta)]
    gaps: list[Drawn] = [gap, gap, gap, lambda: chosen(gap=True), lambda: chosen(gap=True, theta=theta)]
    found = {
        EXACT: exact,
        LIMITED: limited + exact[2:4],
        GAP: gaps + exact[2:4],
        ANY: [*exact, *limited, *gaps, Nothing],
    }
    return rng.choice(found[kind])()


@dataclass(frozen=True)
class RestartedSchedule(Schedule):
    """A schedule whose query is started with any tolerance of its kind."""

    def tolerance_of(self, start: int) -> Tolerance:
        rng = random.Random(f"restarted-tolerance-{self.seed}-{start}")
        if start == 0 or rng.random() < 0.25:
            return self.tolerance
        return tolerance(rng, self.seed % KINDS, self.theta)


class RestartedSimulation(ReplicatedSimulation):
    """The schedules of `ReplicatedSimulation`, longer, which restart between batches with something else."""

    options = ("--restarted",)

    def __init__(self, seed: int) -> None:
        self._load = Load(seed)
        super().__init__(seed)
        self._restless = self._changes.choice((0.0, 0.3, 0.8))

    def schedule_of(self, seed: int) -> Schedule:
        rng, drawn = random.Random(f"restarted-schedule-{seed}"), draw(seed)
        times, batches = draw_input(rng, drawn.combination, drawn.window, rng.choice((5, 6, 8, 10)))
        found = RestartedSchedule(**{one.name: getattr(drawn, one.name) for one in fields(Schedule)})
        return replace(
            found,
            times=times,
            batches=batches,
            tolerance=tolerance(rng, seed % KINDS, found.theta),
            hosts=max(found.workers, rng.choice((2, 3, 3))),
            switches=rng.random() < 0.7,
            unread=False,
            relentless=found.relentless and rng.random() < 0.3,
            offsets_kept=100,
            stops=rng.choice((0.0, 0.0, 0.2)),
        )

    def make_world(self, schedule: Schedule) -> ReplicaWorld:
        rng = random.Random(f"restarted-world-{schedule.seed}")
        given: dict[str, Any] = {"hosts": schedule.hosts, "failures": schedule.failures, "rate": schedule.rate}
        stops, whole, builds = rng.choice((0.01, 0.05, 0.15)), rng.choice((0.3, 0.6, 0.9)), rng.choice((0.0, 0.2))
        return ReplicaWorld(schedule.seed, **given, stops=stops, whole=whole, builds=builds, calm=rng.choice((0, 2)))

    def make_cluster(self) -> MeasuredCluster:
        self.world.now += self._load.seconds()
        return SilentHosts(self.world, self._load, lag=self.schedule.lag)

    def account(self, batch: int) -> None:
        if not any(one.leaves_gap for one in self.had):
            super().account(batch)

    def _look_at_losses(self, engine: Coordinator, around: ReplicaWorld) -> None:
        """A tolerance without records, or another one, may know less of a state than there was."""

    def _rest(self) -> None:
        super()._rest()
        if self.world.rng.random() < 0.3 and len(self.world.slots) > 1 and isinstance(self.world, ReplicaWorld):
            self.world.leave(self.world.rng.choice(sorted(self.world.slots)))

    def _begin(self, batch: int, read: int) -> None:
        self._load.new_batch()
        Simulation._begin(self, batch, read)
        if self.engine is None or not self.engine.runs or len(self.world.slots) < 2:
            return
        run = self.operator_run
        if isinstance(run.node.tolerance, Adaptive) or not run.group.secondaries.can_have_some:
            return
        for worker in range(self.schedule.workers):
            if self._changes.random() < self._restless:
                wanted = scheme(self._changes, gap=run.node.tolerance.leaves_gap)
                self.world.say(f"worker {worker} changes to {wanted}")
                run.want(wanted, [worker])


class SilentHosts(MeasuredCluster):
    """Hosts that are away may come back with what they had: as far as anybody knows, they are frozen."""

    def silent_hosts(self) -> frozenset[str]:
        return frozenset({place[0] for place in self.world.memory} & self.world.away.keys())


class RedividedSimulation(RestartedSimulation):
    """The same over a DataFrame: whoever asks for a batch once more gets its rows in other partitions."""

    options = ("--redivided",)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._divided = random.Random(f"redivided-{seed}")

    def schedule_of(self, seed: int) -> Schedule:
        found = super().schedule_of(seed)
        if found.window is not None and found.window.by == "count":
            # Each worker counts its own items, whichever those are.
            found = replace(found, window=None, ends=False)
        return found

    def assemble(self, schedule: Schedule) -> Pipeline:
        return Pipeline.single(
            source=StreamFrame(NO_FRAME, ""),
            operator=Adding(schedule.spec, other_cells=schedule.other_cells),
            workers=schedule.workers,
            tolerance=schedule.tolerance,
            keyed=schedule.keyed,
            window=schedule.window,
        )

    @property
    def _gaps_are_told(self) -> bool:
        """By key, items are a worker's however they are divided; else nobody can say whose a missing one was."""
        return super()._gaps_are_told and self.schedule.keyed

    def frame(self, batch: int) -> LocalFrame:
        items = [item for chunk in self.schedule.batches[batch] for item in chunk]
        partitions = self._divided.choice((1, 2, 3, 4))
        self.world.say(f"batch {batch} in {partitions} partitions")
        parts = [tuple(items[number::partitions]) for number in range(partitions)]
        return LocalFrame([[as_arrow(part)] if part else [] for part in parts])

    def remake(self, batch: int) -> RemadeFrame:
        return RemadeFrame(self.frame(batch))
