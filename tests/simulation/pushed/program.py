"""The pipeline of a schedule, as a user's program makes it, and the operator in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import pyarrow as pa

from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import rewritten
from afspark.model.operator import Operator
from afspark.model.states import StateSpec
from afspark.policies import Tolerance
from afspark.sources import Pushed
from tests.simulation.pushed.producers import SCHEMA, Item
from tests.simulation.pushed.schedule import PushedSchedule
from tests.simulation.world import world

NAME = "tally"
STATE = "state"
#: cells of a table whose key is not the operator's
OTHERS = 2


class Tally(Operator):
    """Adds every item's value to a cell; its process may die between any two pieces of a batch."""

    key: ClassVar[tuple[str, ...]] = ("key",)

    def __init__(self, spec: StateSpec, table: str, alpha: float) -> None:
        self.spec, self.table, self.alpha = spec, table, alpha

    def states(self) -> Mapping[str, StateSpec]:
        return {STATE: self.spec}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states[STATE].add(self._cells(items), items.column("value"))
        world().point("process")

    def _cells(self, items: pa.RecordBatch) -> Any:
        if self.table == "other":
            return items.column("item").to_numpy() % OTHERS
        return items.column(self.table)


def cell_of(table: str, item: Item) -> int:
    """Where an item's value goes."""
    return item.item % OTHERS if table == "other" else item.key if table == "key" else item.item


@lru_cache
def _source(lanes: int, seconds: float) -> Pushed:
    return Pushed.of(SCHEMA, lanes=lanes, tick_seconds=seconds)


def pipeline(schedule: PushedSchedule, tolerance: Tolerance) -> Pipeline:
    node = Node(
        name=NAME,
        operator=Tally(schedule.spec, schedule.table, schedule.alpha),
        inputs=(Edge(SOURCE),),
        workers=schedule.behind or schedule.lanes,
        tolerance=tolerance,
        keyed=schedule.behind is not None,
        window=schedule.window,
        emits=schedule.emits,
    )
    return rewritten(Graph(sources={SOURCE: _source(schedule.lanes, schedule.seconds)}, nodes=(node,)))
