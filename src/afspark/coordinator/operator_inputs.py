"""Where the items of an operator come from in a batch: sources, receivers, other operators, feedback."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from afspark.coordinator.batch_input import BatchInput, Slice
from afspark.coordinator.offsets import OffsetLog
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.receivers.receivers import Receivers
from afspark.graph.node import Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.numbers import Batch
from afspark.protocol.ports import ALL, items_for
from afspark.sources import Chunk, Planner, Source
from afspark.task.stage_inputs import DirectInput, FrameInput, LaneInput, OutputInput, SourceInput, StageInput

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OperatorInputs:
    """The ways into the operators of one query."""

    pipeline: Pipeline
    planners: Mapping[str, Planner]
    planned: OffsetLog
    receivers: Receivers

    def slices(self, batch: Batch, *, first: bool) -> dict[str, Slice]:
        """What of every source belongs to a batch. ``first``: the first one of this driver."""
        return {name: self._slice(name, batch, first) for name in self.planners}

    def of(
        self,
        run: OperatorRun,
        runs: Sequence[OperatorRun],
        batch: Batch,
        given: BatchInput,
    ) -> list[StageInput]:
        """All inlets of an operator in a batch, for which the sources have ``given``."""
        by_name = {one.name: one for one in runs}
        inputs: list[StageInput] = []
        for edge in run.node.inputs:
            if edge.origin in by_name:
                origin = by_name[edge.origin]
                inputs.append(OutputInput(origin.residents, origin.homes, batch, run.node.addressee, edge.transforms))
            elif edge.origin in self.planners:
                if edge.origin in given.slices:
                    source = self.pipeline.planned[edge.origin]
                    inputs.append(self._from_source(run, edge, source, given.slices[edge.origin], batch))
            elif given.frame is not None and (frame := given.frame.get()) is not None:
                inputs.append(FrameInput(edge.origin, frame, edge.transforms))
        for sender in runs:
            if run.name in sender.node.feeds_back and batch > 0:
                inputs.append(OutputInput(sender.residents, sender.homes, Batch(batch - 1), run.name, feedback=True))
        return inputs

    def produced(self, run: OperatorRun, runs: Sequence[OperatorRun]) -> dict[str, str]:
        """Digests of what the operators upstream keep for this one now."""
        by_name = {one.name: one for one in runs}
        produced = {}
        for name in self.origins(run.node):
            for report in by_name[name].reports:
                ports = (ALL, items_for(run.node.addressee))
                produced[f"{name}:{report.worker}"] = "+".join(report.produced.get(port, "") for port in ports)
        return produced

    def origins(self, node: Node) -> list[str]:
        """The operators that an operator reads from."""
        return [edge.origin for edge in node.inputs if edge.origin not in self.pipeline.sources]

    def reads_source(self, node: Node) -> bool:
        return any(edge.origin in self.pipeline.sources for edge in node.inputs)

    def _from_source(self, run: OperatorRun, edge: Edge, source: Source, part: Slice, batch: Batch) -> DirectInput:
        shares = part.shares(run.node.workers)
        if not source.replayable:
            # A batch that no tick of the source belongs to has no share of it; a worker has the lane of its number.
            taking = [worker for worker, share in shares.items() if share]
            tickets = {worker: self.receivers.ticket(edge.origin, worker, batch) for worker in taking}
            return LaneInput(edge.origin, edge.transforms, tickets)
        return SourceInput(edge.origin, source, edge.transforms, shares)

    def is_gone(self, batch: Batch) -> bool:
        """Whether files that belonged to a batch were removed since."""
        return any(planner.missing(self._chunks(name, batch)) for name, planner in self.planners.items())

    def _chunks(self, name: str, batch: Batch) -> Sequence[Chunk]:
        position = list(self.pipeline.sources).index(name)
        return self.planned.chunks(self.planners[name], batch, position)

    def _slice(self, name: str, batch: Batch, first: bool) -> Slice:
        planner, chunks = self.planners[name], self._chunks(name, batch)
        # Input removed while the query was down is left out; while it runs, that is an error.
        gone = planner.missing(chunks) if first else []
        if gone:
            names = ", ".join(sorted({chunk.part_of for chunk in gone}))
            logger.warning("Batch %d leaves out input that was removed while the query was down: %s.", batch, names)
        return Slice(planner, chunks, gone)
