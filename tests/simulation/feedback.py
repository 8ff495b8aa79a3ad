"""Two operators, the second of which feeds back to the first: every item that comes back counts once, and of those
that wait no more are lost than l allows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.told_bounds import realised
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, StateSpec
from afspark.policies import Approximate, MiniBatch, Tolerance
from afspark.sources.chunks import NumberedChunk
from tests.simulation import invariants, observe
from tests.simulation.invariants import ROUNDING
from tests.simulation.program import ListSource
from tests.simulation.schedule import Schedule, draw
from tests.simulation.simulation import Simulation
from tests.simulation.world import world

FIRST, SECOND = "relay", "echo"
#: Room for the items of a chunk in the numbers of items.
CHUNK = 100


class Counting(Operator):
    """Counts items by number in a table; its process may die between any two pieces of a batch."""

    key: ClassVar[tuple[str, ...]] = ("id",)
    alpha = 1.0
    tables: ClassVar[tuple[str, ...]]

    def states(self) -> Mapping[str, StateSpec]:
        return {name: HashTable(key="int64", value="int64", divergence="manhattan") for name in self.tables}

    def count(self, items: pa.RecordBatch, table: Any, column: str = "id") -> None:
        middle = items.num_rows // 2
        for part in (items.slice(0, middle), items.slice(middle)):
            if part.num_rows:
                table.add(part.column(column), 1)
                world().point("process")


class Relay(Counting):
    """Hands items on, and what comes back a second time."""

    tables = ("passed", "returned")

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        self.count(items, states["passed"])
        return items

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        self.count(items, states["returned"])
        return items.rename_columns(["again"])


class Echo(Counting):
    """Sends two items of three back when it first sees them."""

    tables = ("seen", "heard")

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        if "again" in items.schema.names:
            self.count(items, states["heard"], "again")
            return
        self.count(items, states["seen"])
        returning = [number for number in items.column("id").to_pylist() if comes_back(number)]
        self.context.outbox.feed_back(pa.record_batch({"id": pa.array(returning, pa.int64())}), to=FIRST)


def comes_back(number: int) -> bool:
    return number % 3 != 0


@dataclass(frozen=True)
class Numbered(ListSource, kind="simulation-feedback"):
    """As many items as the schedule has, each with a number of its own."""

    def schema(self) -> pa.Schema:
        return pa.schema({"id": pa.int64()})

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        first = CHUNK * chunk.index
        yield pa.record_batch({"id": pa.array(range(first, first + chunk.bytes), pa.int64())})


class Feedback(Simulation):
    """A schedule's input and failures, with the pipeline and the promises of this module."""

    options = ("--feedback",)

    def __init__(self, seed: int) -> None:
        drawn, rng = draw(seed), random.Random(f"feedback-{seed}")
        limits = Approximate(rng.choice((0.0, 0.0, 12.0)), items=float(rng.choice((8, 24, 80))))
        tolerance: Tolerance = rng.choices((limits, MiniBatch()), (4, 1))[0]
        self.keyed, self.senders = rng.random() < 0.4, rng.choice((1, 2))
        workers, ends = rng.choice((1, 2, 2, 3)), rng.random() < 0.5
        drawn = replace(drawn, switches=False, unread=False)
        super().__init__(replace(drawn, window=None, workers=workers, tolerance=tolerance, ends=ends))

    def assemble(self, schedule: Schedule) -> Pipeline:
        first = Node(
            name=FIRST,
            operator=Relay(),
            inputs=(Edge(SOURCE),),
            workers=schedule.workers,
            keyed=self.keyed,
            tolerance=schedule.tolerance,
        )
        second = Node(
            name=SECOND,
            operator=Echo(),
            inputs=(Edge(FIRST),),
            workers=self.senders,
            tolerance=schedule.tolerance,
            feeds_back=(FIRST,),
        )
        return Pipeline(sources={SOURCE: Numbered(schedule)}, nodes=(first, second))

    # --- what must hold -------------------------------------------------------------------------------------

    def compare(self, batch: int) -> float:
        assert self.engine is not None
        first, second = self.engine.run_of(FIRST), self.engine.run_of(SECOND)
        lost = self._within_l(second)
        if not (observe.at_home(first, batch) and observe.at_home(second, batch)):
            return 0.0
        # Feedback that no key divides reaches every worker.
        copies = 1 if self.keyed else first.node.workers
        came, back = self._numbers(batch), [number for number in self._numbers(batch - 1) if comes_back(number)]
        if self._exact(first) and self._exact(second) and not (lost and self.schedule.lag):
            returned, heard = observe.table(first, "returned"), observe.table(second, "heard")
            assert returned == heard, f"{FIRST} has handed on {returned}, {SECOND} has heard {heard}"
        return max(
            self._counted(first, "passed", came),
            self._counted(second, "seen", came),
            self._counted(first, "returned", back, copies=copies, lost=lost * copies),
            self._counted(second, "heard", back, copies=copies, lost=lost * copies),
        )

    def _exact(self, run: OperatorRun) -> bool:
        """Whether no failure can have taken anything from the states."""
        assert self.engine is not None
        return invariants.covered(self.engine) and not any(realised(run).values())

    def _numbers(self, batch: int) -> list[int]:
        """All items that had come with ``batch``."""
        chunks = sum(map(len, self.schedule.batches[: batch + 1]))
        sizes = map(len, self.schedule.chunks[:chunks])
        return [CHUNK * index + place for index, size in enumerate(sizes) for place in range(size)]

    def _within_l(self, run: OperatorRun) -> int:
        """Feedback that the ledger gives up, which is no more than what was allowed to wait, at once and in all."""
        assert self.engine is not None
        losses = [entry.loss for entry in self.engine.ledger.entries()]
        for loss in losses:
            assert loss.thresholds is not None
            may_wait = loss.thresholds.items
            assert loss.items <= may_wait, f"{loss.items} items lost, {may_wait} may wait"
        total = sum(loss.items for loss in losses)
        assert total <= self._share(run, "items"), (
            f"{total} items lost, {run.name} may lose {self._share(run, 'items')}"
        )
        return total

    def _share(self, run: OperatorRun, limit: str) -> float:
        """The operator's part of what the whole pipeline may lose: of Θ or of L."""
        whole = max(getattr(one, limit) if isinstance(one, Approximate) else 0.0 for one in self.had)
        return float(run.group.budget.place.weight * whole)

    def _counted(self, run: OperatorRun, table: str, expected: list[int], *, copies: int = 1, lost: int = 0) -> float:
        assert self.engine is not None
        got = observe.table(run, table)
        wrong = {number: count for number, count in got.items() if count > copies}
        assert not wrong, f"{table}: counted more often than {copies} times: {wrong}"
        odd = got.keys() - set(expected)
        assert not odd, f"{table}: {sorted(odd)} counted, which nobody sent"
        # A receiver that is replayed does not get feedback any more that its sender has lost meanwhile.
        if self._exact(run) and not (lost and self.schedule.lag):
            torn = {number: count for number, count in got.items() if count < copies}
            assert not torn, f"{table}: counted by some workers and not by others: {torn}"
        missing = copies * len(expected) - sum(got.values())
        taken = realised(run)[table]
        if invariants.covered(self.engine):
            assert taken <= self._share(run, "theta") * (1 + ROUNDING), (
                f"{table}: bound {taken} is above {run.name}'s share"
            )
            # Feedback that a damaged backup held is missing from whoever was to get it, in the sender's bound.
            bound = taken + lost
            assert missing <= bound * (1 + ROUNDING), f"{table}: {missing} missing, the bound is {bound}"
        return float(missing)
