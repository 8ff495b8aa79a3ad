"""One schedule of a pushed stream from its first item to its last, with every promise checked on the way."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.receivers.receivers import recorded_lanes
from afspark.errors import CheckpointError, SegmentError, StoreNotWritable
from afspark.model.windows import Decaying
from afspark.policies import BarrierSnapshot
from afspark.protocol.parcels import open_packets
from afspark.protocol.ports import ROWS
from afspark.store import claim
from afspark.task.step_progress import StepProgress
from tests.simulation import invariants, observe
from tests.simulation.cluster import kept_at
from tests.simulation.pushed.producers import Ledger, Producer
from tests.simulation.pushed.program import NAME, pipeline
from tests.simulation.pushed.promises import Positions, Promise, Truth, told
from tests.simulation.pushed.pushed_cluster import PushedCluster
from tests.simulation.pushed.schedule import PushedSchedule
from tests.simulation.pushed.wire import SimulatedEndpoint
from tests.simulation.pushed.world import PushedWorld
from tests.simulation.simulation import DRIVERS, Outcome, SinkFailed, run_options
from tests.simulation.storage import MemoryStore
from tests.simulation.truth import Cells, summed
from tests.simulation.world import DriverKilled

#: After these the query is started again, by Spark's retries or by its user.
STOPPED = (DriverKilled, StoreNotWritable, SinkFailed)
#: Items that nobody sends again, as the ledger calls them.
_UNSENT = re.compile(r"items (\d+) to \d+ of (.+)")
#: Batches in which nothing goes wrong any more until everything that was acknowledged has arrived.
QUIET = 12


class Stuck(AssertionError):
    """Nothing that was told is wrong, but the stream does not come to its end."""


class PushedSimulation:
    def __init__(self, schedule: PushedSchedule, only: frozenset[str] | None = None) -> None:
        self.schedule = schedule
        self.world = PushedWorld(schedule, only)
        self.store = MemoryStore(self.world)
        self.ledger = Ledger()
        self.truth = Truth(schedule, self.ledger)
        self.promise = Promise(schedule)
        self.engine: Coordinator | None = None
        self.outcome = Outcome(trace=self.world.trace)
        self.producers = [Producer(number, schedule, self.world, self.ledger) for number in range(schedule.producers)]
        self.world.others = self._others
        self.world.kill_receiver = self._kill_receiver
        self.world.kill_producer = self._kill_producer
        self._chunks = 0
        #: sessions of producers that died
        self._dead: set[str] = set()
        self._reached: dict[int, dict[str, int]] = {}

    def run(self) -> Outcome:
        self.world.say(self.schedule.describe())
        try:
            for batch in range(self.schedule.batches):
                self._batch(batch, self.schedule.times[batch])
            if self.schedule.drains:
                self._run_to_the_end(self.schedule.batches)
        finally:
            self.world.end()
        return self.outcome

    # --- Spark's part ---------------------------------------------------------------------------------------

    def _batch(self, batch: int, now: float) -> None:
        self.world.new_batch()
        self.world.say(f"batch {batch}")
        self._decay()
        if self.schedule.relentless and batch and self.world.failures and self.world.happens("all state is lost", 0.7):
            self.world.lose(list(self.world.memory), "between two batches all state is lost")
        for _ in range(2):
            self.world.live()
        self._stop_at_times()
        self._through(batch, now)
        assert self.engine is not None
        with self.world.in_peace():
            self._reached = self._taken()
            self.truth.take(self._reached, self.engine.run_of(NAME))
            self.outcome.batches += 1
            self._look(batch)
            if self.world.chance("a user asks for results") < 0.05:
                self._ask(batch)

    def _run_to_the_end(self, batch: int) -> None:
        """Everything that was acknowledged arrives, if nothing goes wrong any more."""
        self.world.say("nothing goes wrong any more")
        # Ticks are short now: what is there is taken at once.
        self.world.failures, self.world.call_seconds = 0, self.schedule.seconds / 2
        for producer in self.producers:
            producer.left = 0
        barriers = self.schedule.tolerance.batches or 0 if isinstance(self.schedule.tolerance, BarrierSnapshot) else 0
        for number in range(batch, batch + QUIET + 3 * barriers):
            for _ in range(4):
                self.world.live()
            self._batch(number, self.schedule.times[-1])
            for producer in self.producers:
                producer.say_bye()
            if all(producer.over or not producer.session for producer in self.producers) and self._nothing_waits():
                return self._finally(number)
        raise Stuck("what was acknowledged never arrives")

    def _finally(self, batch: int) -> None:
        assert self.engine is not None
        with self.world.in_peace():
            self._ask(batch)
            alive = {producer.id for producer in self.producers}
            unnoticed = 0
            for (lane, session), acked in self.ledger.acked.items():
                taken = self._committed().get(lane, {}).get(session, 0)
                unnoticed += max(0, acked - taken)
                assert taken >= acked or session not in alive, f"lane {lane}: {acked} of {session} acked, {taken} taken"
            # What a receiver lost and its producer did not live to ask for, nobody can tell of. Where state was lost as
            # well, some of it was in that state, and is counted there.
            state_lost = any(entry.loss.counted for entry in self.engine.ledger.entries())
            self.promise.check_losses(self.engine, self.ledger, 0 if state_lost else unnoticed)
            invariants.nothing_named_is_missing(self.engine, self.world)

    def _through(self, batch: int, now: float) -> None:
        """Runs the batch, with as many drivers as it takes."""
        for _ in range(DRIVERS):
            try:
                engine = self._driver()
                if f"offsets/{batch}" not in self.store.objects:
                    self._plan(batch, now)
                engine.run(batch, None, self._deliver)
                self.world.point("before Spark's commit")
                self.store.objects[f"commits/{batch}"] = b"v1\n{}"
                return
            except STOPPED as error:
                self.world.say(f"the query stops: {error!r}")
                self._bury()
            except CheckpointError as error:
                self._excuse(error)
                self._bury()
        raise Stuck(f"batch {batch} never ended")

    def _stop_at_times(self) -> None:
        """The query ends with a last snapshot, and its process, receivers and all, right after it."""
        flushes = self.schedule.tolerance.needs_records and self.world.failures
        if self.engine is None or not flushes or not self.world.happens("the query is stopped", 0.15):
            return
        self.world.say("the query is stopped")
        with suppress(DriverKilled):
            take_last_snapshot(self.engine)
        self._bury()

    def _plan(self, batch: int, now: float) -> None:
        self._chunks += self.schedule.lanes
        head = json.dumps({"batchTimestampMs": round((now + self.world.skews.get("driver", 0.0)) * 1000)})
        self.store.objects[f"offsets/{batch}"] = f"v1\n{head}\n{json.dumps({'chunks': self._chunks})}".encode()

    def _driver(self) -> Coordinator:
        if self.engine is None:
            with self.world.in_peace():
                tolerance = self.schedule.tolerance_of(self.outcome.drivers)
                self.outcome.drivers += 1
                self.promise.add(tolerance)
                self.world.say(f"driver {self.outcome.drivers} starts with {tolerance}")
                pipe = pipeline(self.schedule, tolerance)
                identity = claim(self.store.below("afspark"), pipe.fingerprint(), pipe.settings())
                options = run_options(behind=isinstance(tolerance, BarrierSnapshot))
                engine = Coordinator(PushedCluster(self.world), pipe, options, identity, self.store)
                engine.receivers.open(recorded_lanes(engine.store))
                self.engine = engine
        return self.engine

    def _excuse(self, error: CheckpointError) -> None:
        """What a task that was taken for dead leaves behind may be refused by the engine."""
        if not (self.world.woken and "behind" in str(error)):
            raise error
        self.world.say(f"the query stops: {error}")

    def _bury(self) -> None:
        """The driver is gone, and the receivers with it."""
        here = self.world
        here.dying = False
        here.task, here.host, here.recovering, here.receiver_at_work = None, "driver", False, False
        for endpoint in here.endpoints:
            if endpoint.alive:
                endpoint.die()
        self._drop_acks()
        self.engine = None

    def _decay(self) -> None:
        """Objects rot."""
        if not self.schedule.corrupts or self.engine is None or not self.engine.runs:
            return
        dice = self.world.dice.at(self.world.moments.next("an object rots"))
        chains = [member.chain for member in self.engine.run_of(NAME).group.members if member.chain]
        if not chains or dice.random() > 0.4:
            return
        name = dice.choice(dice.choice(chains)).name
        data = self.store.objects.get(f"afspark/{name}")
        if data is None:
            return  # it is on its way
        self.store.objects[f"afspark/{name}"] = data[: len(data) // 2]
        self.world.destroyed.add(name)
        self.promise.destroyed = True
        self.world.say(f"{name} is destroyed")

    # --- producers and receivers ----------------------------------------------------------------------------

    def _endpoint(self) -> SimulatedEndpoint | None:
        """The receiver that listens now."""
        return next((one for one in reversed(self.world.endpoints) if one.alive), None)

    def _others(self) -> None:
        if self._endpoint() is None and self.engine is not None and self.world.chance("a receiver comes back") < 0.4:
            with self.world.in_peace():
                for receiver_hosts in self.engine.receivers._hosts.values():
                    processes: Any = receiver_hosts
                    for process in processes._processes:
                        process.plan = replace(process.plan, listed=receiver_hosts.listed(process.plan.lanes))
                        process.open()
            self.world.say("the receiver is back")
        for producer in self.producers:
            if self.world.chance(f"{producer.name} acts") < 0.8:
                producer.act(self._endpoint())
        endpoint = self._endpoint()
        if endpoint is not None and self.world.chance("a receiver works") < 0.7:
            endpoint.work()

    def _kill_receiver(self, where: str) -> bool:
        endpoint = self._endpoint()
        if endpoint is None:
            return False
        self.world.say(f"the receiver dies at {where}")
        endpoint.die()
        self._drop_acks()
        return True

    def _drop_acks(self) -> None:
        for producer in self.producers:
            if self.world.chance("acknowledgements are lost") < 0.5:
                producer.lose_acks()

    def _kill_producer(self, where: str) -> bool:
        producer = self.world.dice.choice(self.producers)
        self.world.say(f"{producer.name} dies at {where}")
        if producer.session:
            self._dead.add(producer.id)
        producer.die()
        return True

    def _hear_of_the_dead(self) -> None:
        """What a producer took with it, unacknowledged, cannot be replayed: that is told, and nothing else is so."""
        assert self.engine is not None
        for entry in self.engine.ledger.entries():
            for name in entry.recovery.damaged if entry.recovery is not None else ():
                if (found := _UNSENT.fullmatch(name)) is None:
                    continue
                acked = self.ledger.acked.get((entry.loss.worker, found[2]), 0)
                assert found[2] in self._dead, f"{name} are called gone, and their producer lives"
                assert int(found[1]) >= acked, f"{name} are gone, and {acked} were acknowledged"
                assert not self.promise.logs, f"{name} are gone, and they were logged"
                self.world.destroyed.add(name)
                self.promise.destroyed = True

    def _nothing_waits(self) -> bool:
        endpoint = self._endpoint()
        return endpoint is not None and not any(lane.lane.pending_entries for lane in endpoint.context.lanes.values())

    # --- the sink -------------------------------------------------------------------------------------------

    def _deliver(self, batch: int) -> None:
        self.world.point("before delivery")
        assert self.engine is not None
        run = self.engine.run_of(NAME)
        try:
            # Rows of a table that has another key than the operator are of one worker each, and no results.
            rows = self._rows(run, batch) if self.schedule.emits and self.schedule.table != "other" else None
            windows = observe.closed_windows(run, batch) if self.schedule.window is not None else {}
        except SegmentError as error:
            raise SinkFailed(str(error)) from error
        with self.world.in_peace():
            self._hear_of_the_dead()
            if rows is not None:
                true = self.truth.cells(self._taken(), run).get(0, {})
                true = {cell: true.get(cell, 0) for cell in rows}
                self._note(self.promise.check(rows, true, told(self.engine), f"rows of batch {batch}"))
            # Windows end before the items of the batch.
            panes = self.truth.cells(self._committed(), run) if windows else {}
            for number, cells in windows.items():
                if isinstance(self.schedule.window, Decaying) and max(panes, default=number) > number:
                    continue  # what came later would have to be taken out of it
                true = self._of_window(panes, number)
                self._note(self.promise.check(cells, true, told(self.engine, number), f"window {number}"))
        self.world.point("after delivery")

    def _rows(self, run: OperatorRun, batch: int) -> Cells:
        """The changed rows, as a sink reads them."""
        found: dict[Any, float] = {}
        for member in run.group.members:
            for packet in open_packets(kept_at(run, member.worker, batch, ROWS)):
                for cell, value in observe.plain(packet.items).items():
                    found[cell] = found.get(cell, 0) + value
        return found

    # --- what must hold -------------------------------------------------------------------------------------

    def _committed(self) -> Positions:
        """How far lanes were taken by the last batch; of sessions that are over as well, which no record keeps."""
        return self._reached

    def _taken(self) -> Positions:
        """What is in the states at the end of the batch at work."""
        assert self.engine is not None
        reader = self.engine.runs[0]
        positions = {lane: dict(ends) for lane, ends in self._committed().items()}
        for report in reader.reports:
            positions.setdefault(report.worker, {}).update(report.positions or {})
        return positions

    def _look(self, batch: int) -> None:
        """After a batch: states, losses and what is told of them."""
        assert self.engine is not None
        self.outcome.losses = len(self.engine.ledger.entries()) + len(self.engine.item_losses.entries())
        self._hear_of_the_dead()
        self.promise.check_losses(self.engine, self.ledger)
        invariants.ledger_is_complete(self.engine, self.world)
        if all(observe.at_home(run, batch) for run in self.engine.runs):
            self._compare(self._committed(), f"after batch {batch}")

    def _ask(self, batch: int) -> None:
        """A user asks for results: whoever lost its state meanwhile is recovered first."""
        assert self.engine is not None
        self.engine.ready()
        self._hear_of_the_dead()
        runs = self.engine.runs
        positions = {lane: dict(ends) for lane, ends in self._committed().items()}
        for member in runs[0].group.members:
            segment = self.world.memory.get((member.home, runs[0].name, member.worker))
            if segment is None or segment.marked or segment.version != batch:
                return
            note = segment.step_note(batch + 1)
            if note is not None:
                positions.setdefault(member.worker, {}).update(StepProgress.from_text(note.decode()).positions)
        if positions != self._committed() and (len(runs) > 1 or self.schedule.window is not None):
            return
        if all(observe.at_home(run, batch) for run in runs):
            self._compare(positions, f"results after batch {batch}")

    def _compare(self, positions: Positions, where: str) -> None:
        """The states that are resident, with what is told of them."""
        assert self.engine is not None
        run, window = self.engine.run_of(NAME), self.schedule.window
        panes = self.truth.cells(positions, run)
        if window is None:
            self._note(self.promise.check(observe.states(run).get(0, {}), panes.get(0, {}), told(self.engine), where))
        elif isinstance(window, Decaying):
            if run.latest_tick is not None:
                # Lost items may be newer than all that are known: the state without failures has faded since.
                tick = max(run.latest_tick, *panes, run.latest_tick)
                got = observe.at_tick(run, tick)
                self._note(self.promise.check(got, self._of_window(panes, tick), told(self.engine), where))
        else:
            self._compare_panes(run, panes, where)

    def _compare_panes(self, run: OperatorRun, panes: dict[int, Cells], where: str) -> None:
        assert self.engine is not None
        resident, first = observe.states(run), run.window_progress.first_open
        lowest = run.first_needed
        open_panes = {pane: cells for pane, cells in panes.items() if lowest is None or pane >= lowest}
        got = {pane: cells for pane, cells in resident.items() if lowest is None or pane >= lowest}
        for number in sorted({*open_panes, *got}):
            if first is None or number >= first:
                mine = self._of_window(got, number)
                true = self._of_window(open_panes, number)
                self._note(self.promise.check(mine, true, told(self.engine, number), f"{where}, window {number}"))
        everything = summed(list(got.values()), united=False), summed(list(open_panes.values()), united=False)
        self.promise.check(*everything, told(self.engine), f"{where}, all panes", single=False)

    def _of_window(self, panes: dict[int, Cells], number: int) -> Cells:
        window = self.schedule.window
        assert window is not None
        if isinstance(window, Decaying):
            faded: Cells = {}
            for pane, cells in panes.items():
                for cell, value in cells.items():
                    faded[cell] = faded.get(cell, 0) + value * window.decay ** (number - pane)
            return faded
        inside = [panes[pane] for pane in range(number - window.panes + 1, number + 1) if pane in panes]
        return summed(inside, united=False)

    def _note(self, worst: float) -> None:
        self.outcome.worst = max(self.outcome.worst, worst)
