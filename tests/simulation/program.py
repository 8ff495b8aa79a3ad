"""The pipeline of a schedule, as a user would have written it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import StateSpec
from afspark.sources import Chunk, Planner, Source
from afspark.sources.chunks import NumberedChunk
from afspark.sources.source import LogStore, Offset
from tests.simulation.schedule import OTHERS, Schedule, as_arrow
from tests.simulation.world import world


class Adding(Operator):
    """Adds what comes to a state of any primitive; its process may die between any two pieces of a batch."""

    key: ClassVar[tuple[str, ...]] = ("key",)

    def __init__(self, spec: StateSpec, *, other_cells: bool = False) -> None:
        self.spec, self.other_cells = spec, other_cells

    def states(self) -> Mapping[str, StateSpec]:
        return {"state": self.spec}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        middle = items.num_rows // 2
        for part in (items.slice(0, middle), items.slice(middle)):
            if part.num_rows:
                self._add(part, states["state"])
                world().point("process")
        return None

    def _add(self, items: pa.RecordBatch, state: Any) -> None:
        keys, values = items.column("key").to_numpy(), items.column("value").to_numpy()
        if self.other_cells:
            keys = values % OTHERS
        match self.spec.kind:
            case "numeric":
                for value in values.tolist():
                    state.add(value)
            case "vector" | "matrix":
                state.add_at(keys, values)
            case "hashtable":
                state.add([f"k{key}" for key in keys], values)
            case _:
                state.add([f"k{key}" for key in keys])


class ListPlanner(Planner):
    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes

    def discover(self) -> Offset:
        return {"chunks": len(self._sizes)}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        return end

    def chunks(self, start: Offset, end: Offset) -> list[Chunk]:
        return [chunk(index, self._sizes[index]) for index in range(start["chunks"], end["chunks"])]


def chunk(index: int, size: int) -> NumberedChunk:
    return NumberedChunk(index=index, bytes=size)


@dataclass(frozen=True)
class ListSource(Source, kind="simulation"):
    """The items of a schedule."""

    schedule: Schedule

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "seed": self.schedule.seed}

    def schema(self) -> pa.Schema:
        return as_arrow(((0, 0, None),)).schema

    def planner(self, log: LogStore) -> Planner:
        return ListPlanner([len(items) for items in self.schedule.chunks])

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        yield as_arrow(self.schedule.chunks[chunk.index])


def pipeline(schedule: Schedule) -> Pipeline:
    return Pipeline.single(
        source=ListSource(schedule),
        operator=Adding(schedule.spec, other_cells=schedule.other_cells),
        workers=schedule.workers,
        tolerance=schedule.tolerance,
        keyed=schedule.keyed,
        window=schedule.window,
    )
