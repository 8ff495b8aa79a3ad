"""Where the items of an operator come from in a batch: sources, receivers, other operators, feedback."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from afspark.runtime.crew import Crew
from afspark.runtime.offsets import chunks_of_batch
from afspark.runtime.pipeline import Edge, Node, Pipeline
from afspark.runtime.reception import Reception
from afspark.runtime.shift import ALL, items_for
from afspark.runtime.sources import Chunk, Planner, Pushed, Source
from afspark.runtime.stages import FrameInlet, Inlet, OutputInlet, SourceInlet
from afspark.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Slice:
    """What of a source belongs to a batch. ``gone`` is left out, and every other chunk keeps its reader: some
    workers may have applied their share before the query went down.
    """

    planner: Planner
    chunks: Sequence[Chunk]
    gone: Sequence[Chunk] = ()

    def shares(self, workers: int) -> list[list[Chunk]]:
        shares = self.planner.shares(self.chunks, workers)
        return [[chunk for chunk in part if chunk not in self.gone] for part in shares]


Slices = Mapping[str, Slice]


@dataclass(frozen=True)
class Inlets:
    """The ways into the operators of one query."""

    pipeline: Pipeline
    planners: Mapping[str, Planner]
    checkpoint: Store
    reception: Reception

    def slices(self, batch: int, *, first: bool) -> dict[str, Slice]:
        """What of every source belongs to a batch. ``first``: the first one of this driver."""
        return {name: self._slice(name, batch, first) for name in self.planners}

    def of(self, crew: Crew, crews: Sequence[Crew], batch: int, frame: DataFrame | None, slices: Slices) -> list[Inlet]:
        """All inlets of an operator in a batch."""
        by_name = {one.name: one for one in crews}
        inlets: list[Inlet] = []
        for edge in crew.node.inputs:
            source = self.pipeline.sources.get(edge.origin)
            if edge.origin not in self.pipeline.sources:
                origin = by_name[edge.origin]
                inlets.append(OutputInlet(origin.residents, origin.homes, batch, crew.name, edge.transforms))
            elif isinstance(source, Source):
                if edge.origin in slices:
                    inlets.append(self._from_source(crew, edge, source, slices[edge.origin]))
            elif frame is not None:
                inlets.append(FrameInlet(edge.origin, frame, edge.transforms))
        for sender in crews:
            if crew.name in sender.node.feeds_back and batch > 0:
                inlets.append(OutputInlet(sender.residents, sender.homes, batch - 1, crew.name, feedback=True))
        return inlets

    def produced(self, crew: Crew, crews: Sequence[Crew]) -> dict[str, str]:
        """Digests of what the operators upstream keep for this one now."""
        by_name = {one.name: one for one in crews}
        produced = {}
        for name in self.origins(crew.node):
            for report in by_name[name].reports:
                ports = (ALL, items_for(crew.name))
                produced[f"{name}:{report.worker}"] = "+".join(report.produced.get(port, "") for port in ports)
        return produced

    def origins(self, node: Node) -> list[str]:
        """The operators that an operator reads from."""
        return [edge.origin for edge in node.inputs if edge.origin not in self.pipeline.sources]

    def reads_source(self, node: Node) -> bool:
        return any(edge.origin in self.pipeline.sources for edge in node.inputs)

    def _from_source(self, crew: Crew, edge: Edge, source: Source, part: Slice) -> SourceInlet:
        shares = part.shares(crew.node.workers)
        if isinstance(source, Pushed):
            shares = [[self.reception.claim(edge.origin, chunk) for chunk in share] for share in shares]
        return SourceInlet(edge.origin, source, edge.transforms, shares)

    def _slice(self, name: str, batch: int, first: bool) -> Slice:
        planner = self.planners[name]
        position = list(self.pipeline.sources).index(name)
        chunks = chunks_of_batch(self.checkpoint, planner, batch, position)
        # Input removed while the query was down is left out; while it runs, that is an error.
        gone = planner.missing(chunks) if first else []
        if gone:
            names = ", ".join(sorted({chunk["path"] for chunk in gone}))
            logger.warning("Batch %d leaves out input that was removed while the query was down: %s.", batch, names)
        return Slice(planner, chunks, gone)
