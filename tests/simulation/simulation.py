"""One schedule from its first batch to its last: drivers come and go, and every promise is checked on the way."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from afspark.cluster.local.local_frame import LocalFrame
from afspark.cluster.remade_frame import RemadeFrame
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.run_options import RunOptions
from afspark.coordinator.told_bounds import realised
from afspark.errors import CheckpointError, SegmentError, StoreNotWritable, WorkerFailed
from afspark.graph.pipeline import Pipeline
from afspark.policies import Tolerance
from afspark.store import claim
from tests.simulation import invariants, observe
from tests.simulation.cluster import Faults, SimulatedCluster
from tests.simulation.program import pipeline
from tests.simulation.schedule import Schedule, draw
from tests.simulation.storage import MemoryStore
from tests.simulation.truth import Cells, Truth
from tests.simulation.world import DriverKilled, World, entered

#: More drivers than any schedule has failures for.
DRIVERS = 40


class SinkFailed(Exception):
    """The sink could not read what a worker kept, or is full; the engine stops the query if it finds nobody lost."""


#: After these the query is started again, by Spark's retries or by its user.
STOPPED = (DriverKilled, StoreNotWritable, SinkFailed)


class Broken(AssertionError):
    """A schedule broke a promise; the message says how to see it again."""

    def __init__(self, seed: int, why: str, trace: list[str], *options: str) -> None:
        line = " ".join(["python -m tests.simulation", *options, f"--seed {seed} -v"])
        super().__init__(f"seed {seed}: {why}\nreplay: {line}")
        self.seed, self.why, self.trace = seed, why, trace


def run_options(*, behind: bool = False, record_seconds: float = 0.0, offsets_kept: int = 100) -> RunOptions:
    """Drivers come one after the other, so that nobody has to wait for the end of a lease. ``behind``: records may be
    behind the batches, and are so far apart at least.
    """
    faults: Any = Faults()
    return RunOptions(
        checkpoint="memory:",
        host_grace_seconds=0.0,
        faults=faults,
        takeover=True,
        lease_seconds=0.0,
        max_replay_seconds=1000.0 if behind else 0.0,
        record_seconds=record_seconds,
        offsets_kept=offsets_kept,
    )


@dataclass(frozen=True)
class Delivery:
    """What a sink got for a batch: closed windows, and the bound that was promised for each."""

    windows: dict[int, Cells]
    bounds: dict[int, float]


@dataclass
class Outcome:
    """What a schedule has been through, for those who count."""

    batches: int = 0
    losses: int = 0
    drivers: int = 0
    worst: float = 0.0
    #: how often things have happened that only some schedules have
    seen: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


class Simulation:
    #: what the command line needs to replay such a one
    options: tuple[str, ...] = ()

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.world = self.make_world(schedule)
        self.store = MemoryStore(self.world)
        #: the policies that the query has had so far
        self.had: list[Tolerance] = []
        self.truth = Truth(schedule)
        self.engine: Coordinator | None = None
        self._stops = random.Random(f"stops-{schedule.seed}")
        self._rotting = random.Random(f"rotting-{schedule.seed}")
        self.deliveries: dict[int, list[Delivery]] = {}
        self.outcome = Outcome(trace=self.world.trace)

    def make_world(self, schedule: Schedule) -> World:
        return World(schedule.seed, hosts=schedule.hosts, failures=schedule.failures, rate=schedule.rate)

    def make_cluster(self) -> SimulatedCluster:
        return SimulatedCluster(self.world, lag=self.schedule.lag)

    def assemble(self, schedule: Schedule) -> Pipeline:
        return pipeline(schedule)

    def frame(self, batch: int) -> LocalFrame | None:
        """What Spark hands over, where the pipeline reads a DataFrame."""

    def remake(self, batch: int) -> RemadeFrame:
        """The same for a batch of the past."""
        return RemadeFrame(None)

    @property
    def operator_run(self) -> OperatorRun:
        assert self.engine is not None
        return self.engine.run_of()

    def run(self) -> Outcome:
        self.world.say(self.schedule.describe())
        read = 0
        for batch, chunks in enumerate(self.schedule.batches):
            read += len(chunks)
            self._begin(batch, read)
            self._through(batch)
            self.truth.apply(batch)
            self._look(batch)
        last = len(self.schedule.batches)
        if self.schedule.ends:
            last = self._end(last)
        self._stop_at_times()
        self._look(last - 1, finally_=True)
        return self.outcome

    # --- Spark's part ---------------------------------------------------------------------------------------

    def _begin(self, batch: int, read: int) -> None:
        self._stop_at_times()
        self.world.now = max(self.world.now, self.schedule.times[batch])
        self.world.new_batch()
        if self.schedule.relentless and batch and self.world.rng.random() < 0.8:
            self.world.lose(list(self.world.memory), "every state goes")
        self.world.say(f"batch {batch}")
        head = json.dumps({"batchTimestampMs": round(self.schedule.times[batch] * 1000)})
        self.store.objects[f"offsets/{batch}"] = f"v1\n{head}\n{json.dumps({'chunks': read})}".encode()
        self.store.objects.pop(f"offsets/{batch - self.schedule.offsets_kept - 1}", None)
        self._decay()
        if (self.schedule.switches or self.schedule.unread) and self.engine is not None:
            self._restart()
        self._rot()

    def _through(self, batch: int) -> None:
        """Runs the batch, with as many drivers as it takes."""
        for _ in range(DRIVERS):
            try:
                self._driver().run(batch, self.frame(batch), self._deliver)
                self.world.point("before Spark's commit")
                self.store.objects[f"commits/{batch}"] = b"v1\n{}"
                return
            except STOPPED as error:
                self._close(error)
                if self.schedule.unread:
                    self._rest()
            except (CheckpointError, WorkerFailed) as error:
                self._excuse(error)
                self._bury()
        raise AssertionError(f"batch {batch} never ended")

    def _end(self, batch: int) -> int:
        """Ends the stream; the number of batches run so far."""
        self.world.say("the stream ends")
        self.truth.end(batch)
        for _ in range(DRIVERS):
            try:
                engine = self._driver()
                engine.end(self._deliver)
                after = engine._next_batch()
                for number in range(batch, after):
                    self._check_deliveries(number)
                return after
            except STOPPED as error:
                self._close(error)
            except (CheckpointError, WorkerFailed) as error:
                self._excuse(error)
                self._bury()
        raise AssertionError("the stream never ended")

    def _driver(self) -> Coordinator:
        if self.engine is None:
            self.outcome.drivers += 1
            store = self.store.below("afspark")
            self.had.append(self.schedule.tolerance_of(self.outcome.drivers - 1))
            self.world.say(f"driver {self.outcome.drivers} starts with {self.had[-1]}")
            pipeline = self.assemble(replace(self.schedule, tolerance=self.had[-1]))
            with self.world.in_peace():
                identity = claim(store, pipeline.fingerprint(), pipeline.settings())
            self.engine = Coordinator(
                self.make_cluster(),
                pipeline,
                run_options(
                    behind=self.schedule.lag > 0,
                    record_seconds=self.schedule.record_seconds,
                    offsets_kept=self.schedule.offsets_kept,
                ),
                identity,
                self.store,
                self,
            )
        return self.engine

    def _excuse(self, error: CheckpointError | WorkerFailed) -> None:
        """A zombie that had to create its state can do so after a loss; the engine refuses what it then finds."""
        refused = "behind" if isinstance(error, CheckpointError) else "has no report"
        if not (self.world.woken and refused in str(error)):
            raise error
        self.world.say(f"the query stops: {error}")

    def _is_time_to_stop(self) -> bool:
        return not self.world.quiet and self._stops.random() < self.schedule.stops

    def _stop_at_times(self) -> None:
        """The query is stopped in an orderly way, to be started again."""
        if self.engine is None or not self._is_time_to_stop():
            return
        self.world.say("the query is stopped")
        try:
            take_last_snapshot(self.engine)
        except DriverKilled as error:
            self._close(error)
        else:
            self._close(None)

    def _close(self, why: BaseException | None) -> None:
        """The end of a driver, with what a query does then unless it was killed."""
        if self.engine is not None and self.schedule.stops and not isinstance(why, DriverKilled):
            with suppress(DriverKilled):
                self.engine.close()
                if self.engine.log.is_open:
                    invariants.nothing_named_is_missing(self.engine, self.world)
        self._bury()

    def _bury(self) -> None:
        self.world.dying = False
        self.world.task, self.world.host = None, "driver"
        self.engine = None

    def _decay(self) -> None:
        """Objects rot: mostly the newest one of a worker."""
        rng = self.world.rng
        if not self.schedule.corrupts or self.engine is None or not self.engine.runs or rng.random() > 0.4:
            return
        written = [
            [
                ref
                for ref in member.chain
                if f"afspark/{ref.name}" in self.store.objects or ref.name in self.world.destroyed
            ]
            for member in self.operator_run.group.members
        ]
        chains = [chain for chain in written if chain]
        if not chains:
            return
        chain = rng.choice(chains)
        name = (chain[-1] if rng.random() < 0.7 else rng.choice(chain)).name
        if name in self.world.destroyed:
            return
        full = f"afspark/{name}"
        data = self.store.objects.get(full, b"")
        match rng.randrange(3):
            case 0:
                self.store.objects.pop(full, None)
            case 1:
                self.store.objects[full] = data[: len(data) // 2]
            case _:
                middle = len(data) // 2
                self.store.objects[full] = data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :]
        self.world.destroyed.add(name)
        self.world.say(f"{name} is destroyed")

    def _restart(self) -> None:
        """Between two batches the query ends, and is started again."""
        if self.world.rng.random() < 0.4:
            return
        if self.world.rng.random() < 0.5:
            self.world.say("the query is stopped")
            with self.world.in_peace():
                assert self.engine is not None
                self.engine.close()
        else:
            self.world.say("the driver dies between two batches")
        self._bury()
        self._rest()

    def _rest(self) -> None:
        """While there is no driver, state is lost, and records may rot as well."""
        rng = self.world.rng
        if self.world.memory and rng.random() < 0.6:
            held = sorted(self.world.memory)
            self.world.lose(held if rng.random() < 0.5 else [rng.choice(held)], "while there is no driver")
        if self.schedule.unread and rng.random() < 0.5:
            self._destroy_records()

    def _destroy_records(self) -> None:
        """All of them, or the newest ones."""
        rng = self.world.rng
        records = sorted(
            name for name in self.store.objects if name.startswith("afspark/epochs/") and "/records/" in name
        )
        for name in records[-rng.choice((1, len(records), len(records))) :] if records else ():
            if rng.random() < 0.5:
                del self.store.objects[name]
            else:
                self.store.objects[name] = self.store.objects[name][:-7]
            self.world.destroyed.add(name.removeprefix("afspark/"))
            self.world.say(f"{name} is destroyed")

    def _rot(self) -> None:
        """The newest record rots, and drivers die that know it; one sound record stays. Where nothing is replayed,
        windows go with it.
        """
        if not self.schedule.rots or self.engine is None or not self.engine.pipeline.replayable:
            return
        if self._rotting.random() > 0.5:
            return
        records = [name for _, (name, _) in sorted(self.engine.log._records.items())]
        sound = [name for name in records if name not in self.world.destroyed]
        if len(sound) < 2:
            return
        self.world.destroyed.add(sound[-1])
        self.store.objects[f"afspark/{sound[-1]}"] = b"rot"
        self.world.say(f"{sound[-1]} rots")
        if self._rotting.random() < 0.7:
            self.world.say("the driver dies between two batches")
            self._bury()
        if self._rotting.random() < 0.5:
            self.world.lose(list(self.world.memory), "every state goes")

    # --- the sink -------------------------------------------------------------------------------------------

    def _deliver(self, batch: int) -> None:
        self.world.point("before delivery")
        if self._is_time_to_stop():
            raise SinkFailed("it is full")
        windows = {}
        if self.schedule.window is not None:
            try:
                windows = observe.closed_windows(self.operator_run, batch)
            except SegmentError as error:
                raise SinkFailed(str(error)) from error
        bounds = {number: realised(self.operator_run, number)["state"] for number in windows}
        self.deliveries.setdefault(batch, []).append(Delivery(windows, bounds))
        self.world.say(f"  batch {batch} is delivered, windows {sorted(windows)}")
        self.world.point("after delivery")

    # --- what must hold -------------------------------------------------------------------------------------

    def _look(self, batch: int, *, finally_: bool = False) -> None:
        self.outcome.batches += 1
        with self.world.in_peace():
            if finally_:
                self._driver().ready()
            assert self.engine is not None
            self._check_deliveries(batch)
            invariants.ledger_is_complete(self.engine, self.world)
            if finally_:
                invariants.nothing_named_is_missing(self.engine, self.world)
            else:
                self.account(batch)
            self._note(self.compare(batch))
            self.outcome.losses = len(self.engine.ledger.entries())

    def account(self, batch: int) -> None:
        """Every item that came is counted."""
        assert self.engine is not None
        if not self._has_forgotten:
            invariants.items_are_accounted_for(self.engine, self.truth)

    @property
    def _has_forgotten(self) -> bool:
        """Whether a driver has started from an older record than that of the last batch, or from none."""
        kept = all(tolerance.needs_records for tolerance in self.had)
        return not kept or any("/records/" in name for name in self.world.destroyed)

    def compare(self, batch: int) -> float:
        """How far the resident states are from the truth, which must be within what is promised."""
        assert self.engine is not None
        if not observe.at_home(self.operator_run, batch):
            return 0.0
        return invariants.state_is_within_bounds(self.engine, self.truth, self.schedule, self.had)

    def _check_deliveries(self, batch: int) -> None:
        assert self.engine is not None
        for delivery in self.deliveries.get(batch, []):
            self._note(
                invariants.windows_are_complete(
                    self.engine,
                    self.truth.closed.get(batch, {}),
                    delivery.windows,
                    delivery.bounds,
                    self.schedule,
                    self.had,
                )
            )

    def _note(self, worst: float) -> None:
        self.outcome.worst = max(self.outcome.worst, worst)


def alone(seed: int) -> Simulation:
    """One operator."""
    return Simulation(draw(seed))


def simulate(seed: int, make: Callable[[int], Simulation] = alone) -> Outcome:
    """Runs one schedule; raises `Broken` if a promise was not kept."""
    simulation = make(seed)
    try:
        with entered(simulation.world):
            return simulation.run()
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise Broken(seed, why, simulation.world.trace, *simulation.options) from error
    finally:
        simulation.world.close()
