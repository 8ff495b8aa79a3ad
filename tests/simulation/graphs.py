"""Random graphs of operators with fan-out, fan-in and feedback, each operator under a policy of its own.

Beside every query runs the same one without failures and with every record in time: exact operators have the same cells
at every worker, byte for byte, unless they depend on one that has lost something under an approximate policy. At the
end all state is lost with the driver, so that the newest record and a replay must give all of it once more.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.replay_check import ReplayCheck
from afspark.coordinator.told_bounds import realised
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, StateSpec
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.store import claim
from tests.simulation import invariants, observe
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.feedback import Numbered
from tests.simulation.graph_world import GraphWorld
from tests.simulation.schedule import Schedule, draw
from tests.simulation.simulation import Simulation, run_options
from tests.simulation.storage import MemoryStore
from tests.simulation.world import entered, world

TABLES = ("seen", "returned", "sums")
NAMES = "abcd"


class Step(Operator):
    """Counts items, adds up what they weigh, hands them on, and sends every third one back when it first sees it.

    ``running``: what it hands on weighs as much as it has counted, so that it depends on its state.
    """

    key: ClassVar[tuple[str, ...]] = ("id",)
    alpha = 1.0

    def __init__(self, salt: int, feeds_back: Sequence[str], *, running: bool) -> None:
        self.salt, self.back, self.running = salt, tuple(feeds_back), running

    def states(self) -> Mapping[str, StateSpec]:
        whole = HashTable(key="int64", value="int64", divergence="manhattan")
        return {"seen": whole, "returned": whole, "sums": replace(whole, value="float64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        middle = items.num_rows // 2
        for part in (items.slice(0, middle), items.slice(middle)):
            if part.num_rows:
                states["seen"].add(part.column("id"), 1)
                weights = part.column("weight") if "weight" in part.schema.names else 1.0
                states["sums"].add(part.column("id"), weights)
                world().point("process")
        if "again" not in items.schema.names:
            returning = [one for one in items.column("id").to_pylist() if (one + self.salt) % 3 == 0]
            for target in self.back:
                self.context.outbox.feed_back(pa.record_batch({"id": pa.array(returning, pa.int64())}), to=target)
        return self._handed_on(items, states)

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["returned"].add(items.column("id"), 1)
        world().point("feedback")
        again = self._handed_on(items, states)
        return again.append_column("again", pa.array([True] * items.num_rows))

    def _handed_on(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        weights = states["seen"].get(items.column("id")) / 7 if self.running else [0.1] * items.num_rows
        columns: dict[str, Any] = {"id": items.column("id"), "weight": pa.array(weights, pa.float64())}
        if "again" in items.schema.names:
            columns["again"] = items.column("again")
        return pa.record_batch(columns)


@dataclass(frozen=True)
class Plan:
    """One operator of a graph, as it was drawn."""

    name: str
    inputs: tuple[str, ...]
    feeds_back: tuple[str, ...]
    workers: int
    keyed: bool
    running: bool
    tolerance: Tolerance


def draw_graph(seed: int) -> list[Plan]:
    rng = random.Random(f"graph-{seed}")
    names = NAMES[: rng.choice((2, 3, 3, 4))]
    recovery = rng.choice(("partial", "partial", "partial", "full"))
    above: dict[str, set[str]] = {}
    plans = []
    for number, name in enumerate(names):
        sources = [SOURCE, *names[:number]]
        inputs = tuple(rng.sample(sources, min(len(sources), rng.choice((1, 1, 2))))) if number else (SOURCE,)
        above[name] = {one for origin in inputs if origin != SOURCE for one in (origin, *above[origin])}
        back = tuple(one for one in sorted(above[name]) if rng.random() < 0.35)
        plans.append(
            Plan(
                name=name,
                inputs=inputs,
                feeds_back=back,
                workers=rng.choice((1, 2, 2)),
                keyed=rng.random() < 0.5,
                running=rng.random() < 0.5,
                tolerance=_policy(rng, recovery),
            )
        )
    # Feedback that no key divides reaches every worker, and would come in as many copies as there are workers.
    targets = {target for plan in plans for target in plan.feeds_back}
    return [replace(plan, keyed=plan.keyed or plan.name in targets) for plan in plans]


def _policy(rng: random.Random, recovery: str) -> Tolerance:
    interval: dict[str, Any] = rng.choice(({"batches": 2}, {"batches": 3}, {"items": 9}, {"interval": 4.0}))
    snapshots = BarrierSnapshot(**interval, asynchronous=rng.random() < 0.8, recovery=recovery)
    return rng.choices((MiniBatch(), snapshots, Approximate(float(rng.choice((4, 40))))), (3, 4, 2))[0]


def policies_of(seed: int, plans: Sequence[Plan], start: int) -> list[Tolerance]:
    """The operators' policies when the query is started for the ``start``-th time: now and then others, and none."""
    rng = random.Random(f"graph-policies-{seed}-{start}")
    if start == 0 or rng.random() >= 0.2:
        return [plan.tolerance for plan in plans]
    # Nothing is replayed where one operator has no backups, so that there can be no snapshots.
    return [rng.choice((Nothing(), Nothing(), MiniBatch(), Approximate(float(rng.choice((4, 40)))))) for _ in plans]


class Graphs(Simulation):
    """A schedule's input and failures, with the pipeline and the promises of this module."""

    options = ("--graphs",)

    def __init__(self, seed: int, plans: Sequence[Plan] | None = None, hosts: int = 1) -> None:
        drawn = draw(seed)
        drawn = replace(drawn, hosts=max(drawn.hosts, hosts))
        self.plans = plans or draw_graph(seed)
        lag = drawn.lag or random.Random(f"lag-{seed}").choice((1, 3, 8))
        kept = replace(drawn, window=None, tolerance=MiniBatch(), ends=False, corrupts=False, lag=lag)
        kept = replace(kept, switches=False, unread=False, offsets_kept=100)
        super().__init__(replace(kept, batches=drawn.batches[:5], times=drawn.times[:5]))
        #: all that operators have had so far, by name
        self.policies: dict[str, list[Tolerance]] = {plan.name: [] for plan in self.plans}
        self.calm = Calm(seed, self.pipeline_of([MiniBatch() for _ in self.plans]))

    def make_world(self, schedule: Schedule) -> GraphWorld:
        return GraphWorld(schedule.seed, hosts=schedule.hosts, failures=schedule.failures, rate=schedule.rate)

    def assemble(self, schedule: Schedule) -> Pipeline:
        policies = policies_of(self.schedule.seed, self.plans, self.outcome.drivers - 1)
        for plan, tolerance in zip(self.plans, policies, strict=True):
            self.policies[plan.name].append(tolerance)
            self.world.say(f"{plan.name} has {tolerance}")
        return self.pipeline_of(policies)

    def pipeline_of(self, policies: Sequence[Tolerance]) -> Pipeline:
        nodes = [
            Node(
                name=plan.name,
                operator=Step(number, plan.feeds_back, running=plan.running),
                inputs=tuple(Edge(origin) for origin in plan.inputs),
                workers=plan.workers,
                keyed=plan.keyed,
                tolerance=tolerance,
                feeds_back=plan.feeds_back,
            )
            for number, (plan, tolerance) in enumerate(zip(self.plans, policies, strict=True))
        ]
        return Pipeline(sources={SOURCE: Numbered(self.schedule)}, nodes=tuple(nodes))

    # --- what must hold -------------------------------------------------------------------------------------

    def account(self, batch: int) -> None:
        assert self.engine is not None
        self.calm.follow(self.store, batch)
        if all(tolerance.needs_records for had in self.policies.values() for tolerance in had):
            assert self.engine.items == self.calm.engine.items, "items were missed or counted twice"

    def compare(self, batch: int) -> float:
        assert self.engine is not None
        self.calm.follow(self.store, batch)
        self._only_the_lost_have_replayed(batch)
        if not all(observe.at_home(run, batch) for run in self.engine.runs):
            return 0.0
        return max(self._compared(run) for run in self.engine.runs)

    def _compared(self, run: OperatorRun) -> float:
        assert self.engine is not None
        told = realised(run)
        if self._depends_on_a_loss(run):
            return 0.0
        if not any(told.values()):
            got, expected = self._cells(self.engine, self.world, run), self.calm.cells(run.name)
            assert got == expected, f"{run.name} has {got}, without failures {expected}"
            return 0.0
        worst = 0.0
        for table in TABLES:
            got, expected = observe.table(run, table), self.calm.table(run.name, table)
            apart = sum(abs(got.get(key, 0) - expected.get(key, 0)) for key in {*got, *expected})
            assert apart <= told[table] * (1 + invariants.ROUNDING) + 1e-9, f"{run.name} {table}: {apart}, told {told}"
            worst = max(worst, apart)
        return worst

    def _depends_on_a_loss(self, run: OperatorRun) -> bool:
        """Whether an approximate operator that has lost something can have sent it anything that depends on it."""
        assert self.engine is not None
        check = ReplayCheck(self.engine.pipeline.nodes)
        losers = [one.name for one in self.engine.runs if any(realised(one).values())]
        return any(run.name in check.reached_from(name) for name in losers)

    @staticmethod
    def _cells(engine: Coordinator, around: Any, run: OperatorRun) -> list[dict[str, Any]]:
        return [
            {table: observe.table(run, table, only=member.worker) for table in TABLES} for member in run.group.members
        ]

    def _only_the_lost_have_replayed(self, batch: int) -> None:
        """Nobody applies a batch of the past but those whose state was lost, or who were sent something else."""
        assert self.engine is not None and isinstance(self.world, GraphWorld)
        everybody = any(plan.tolerance.takes_all_back for plan in self.plans)
        # A driver that replays nothing forgets what the next one would need of a state that is still there.
        forgot = any(not tolerance.needs_records for had in self.policies.values() for tolerance in had)
        declared = set()
        for entry in self.engine.ledger.entries():
            loss = entry.loss
            lost = (loss.operator, loss.worker, loss.incarnation)
            declared.add(lost)
            if "goes back" in loss.cause:
                assert everybody or self._may_differ(), f"{lost} went back: {loss.cause}"
        invariants.losses_are_real(self.engine, self.world, forgot=forgot)
        for operator, worker, incarnation, past in self.world.replayed:
            assert (operator, worker, incarnation - 1) in declared, (
                f"{operator}/{worker}.{incarnation} has applied batch {past} again without having lost anything"
            )

    def _may_differ(self) -> bool:
        """Whether something is sent that an approximate operator cannot make again."""
        return any(
            plan.running and not all(tolerance.exact for tolerance in self.policies[plan.name]) for plan in self.plans
        )

    def run(self) -> Any:
        outcome = super().run()
        with self.world.in_peace():
            assert self.engine is not None
            self.engine.commits.close()
            assert self.engine.commits.records.newest is None, "a snapshot has not come to an end"
            self.world.lose(list(self.world.memory), "at the end all state")
            self._bury()
            self._driver().ready()
            self.compare(len(self.schedule.batches) - 1)
        return outcome


class Calm:
    """The same query without failures, under an exact policy, with every record in time."""

    def __init__(self, seed: int, pipeline: Pipeline) -> None:
        self.world = GraphWorld(seed, hosts=1, failures=0, rate=0.0)
        self.store = MemoryStore()
        with entered(self.world):
            identity = claim(self.store.below("afspark"), pipeline.fingerprint(), pipeline.settings())
            self.engine = Coordinator(SimulatedCluster(self.world), pipeline, run_options(), identity, self.store)
        self._done = -1
        self._found: dict[str, list[dict[str, Any]]] = {}

    def follow(self, store: MemoryStore, batch: int) -> None:
        """Runs what the other query has run."""
        with entered(self.world):
            while self._done < batch:
                self._done += 1
                self.store.objects[f"offsets/{self._done}"] = store.objects[f"offsets/{self._done}"]
                self.engine.run(self._done, None, lambda _: None)
                self.store.objects[f"commits/{self._done}"] = b"v1\n{}"
                self._found = {run.name: Graphs._cells(self.engine, self.world, run) for run in self.engine.runs}

    def cells(self, name: str) -> list[dict[str, Any]]:
        return self._found[name]

    def table(self, name: str, table: str) -> Counter[Any]:
        total: Counter[Any] = Counter()
        for share in self._found[name]:
            total.update(share[table])
        return total
