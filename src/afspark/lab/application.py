"""The pipeline under study: what the user's function builds, and what is run of it in a trial."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from afspark.api.assembly import composed
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.errors import AfsparkError, UsageError, first_line
from afspark.graph.fusing import fuse_steps
from afspark.graph.graph import Graph
from afspark.graph.injector import Inlet, StreamFault, injecting, injector_name
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import REWRITES, rewritten
from afspark.lab.targets import sends_by_state
from afspark.policies import Nothing
from afspark.policies.parameters import shown
from afspark.sources import Source

#: Builds a pipeline on the streams that it is given: its last operator, or the writer of that.
Builder = Callable[..., Any]


@dataclass(frozen=True)
class Application:
    """A pipeline on sources of the laboratory, and the operator whose output is scored."""

    #: as the user has composed it, steps fused into the edges
    graph: Graph
    output: str
    #: "append", "update" or "complete"
    mode: str

    @classmethod
    def built(cls, builder: Builder, sources: Sequence[Source]) -> Application:
        """What ``builder`` makes of streams of these sources."""
        made = call(builder, [Stream(None, (Inflow(source),)) for source in sources])
        last, mode = _sink(made)
        graph = fuse_steps(composed([(last, mode)]))
        strange = [source for source in graph.sources.values() if source not in sources]
        if strange:
            raise UsageError(
                "The pipeline reads a source of its own.",
                remedy="Build it on the streams that the function is given: the laboratory has to know all items.",
            )
        if len(graph.sources) < len(sources):
            raise UsageError(
                f"The pipeline reads {len(graph.sources)} of the {len(sources)} inputs.",
                remedy="Give as many inputs as the function takes streams, and use each.",
            )
        return cls(graph, last.name, mode)

    @property
    def comparable(self) -> bool:
        """Whether all that later batches depend on is in states: no windows are open, no feedback is under way."""
        return all(node.window is None and not node.feeds_back for node in self.graph.nodes)

    @property
    def stateful(self) -> list[str]:
        """The operators whose states have to do with what comes out."""
        shown = self.output if self.mode != "append" else None
        return [
            node.name
            for node in self.graph.nodes
            if sends_by_state(node) or (node.name == shown and node.operator.states())
        ]

    def inlets(self) -> list[Inlet]:
        """All inputs of all operators, and what the last one gives out item by item."""
        found = [Inlet(node.name, number) for node in self.graph.nodes for number in range(len(node.inputs))]
        return found + [Inlet(node.name, behind=True) for node in self.graph.nodes if node.appends]

    def sink(self, pipeline: Pipeline) -> str:
        """The node of a trial whose items are the output: the last operator, or the injector behind it."""
        behind = injector_name(Inlet(self.output, behind=True), {node.name for node in self.graph.nodes})
        return behind if any(node.name == behind for node in pipeline.nodes) else self.output

    def instrumented(self, faults: Mapping[Inlet, StreamFault]) -> Pipeline:
        """The pipeline of a trial: with an injector in front of these inputs, and without protection, which no fault
        that an injector makes could need.
        """
        return rewritten(self.graph, (*REWRITES, unprotected, injecting(faults)))


def unprotected(graph: Graph) -> Graph:
    """The graph without backups."""
    return replace(graph, nodes=tuple(replace(node, tolerance=Nothing()) for node in graph.nodes))


def call(builder: Builder, streams: Sequence[Stream]) -> Any:
    """What the user's function makes of these streams."""
    try:
        return builder(*streams)
    except AfsparkError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and "positional argument" in str(error):
            raise UsageError(
                f"The pipeline's function does not take {len(streams)} stream{'s' if len(streams) != 1 else ''}:"
                f" {first_line(error)}.",
                remedy="It is called with one stream for each input.",
            ) from error
        # The frame below ours is the function itself, unless it could not be called; what it calls may be anybody's.
        place = traceback.extract_tb(error.__traceback__)[:2][-1]
        raise UsageError(
            f"The pipeline's function raised {type(error).__name__}: {first_line(error)}"
            f" ({Path(place.filename).name}, line {place.lineno}).",
            remedy="Mend it: it is given a stream for each input, and returns the last operator.",
        ) from error


def _sink(made: object) -> tuple[StatefulStream, str]:
    if isinstance(made, StatefulStream):
        return made, "append"
    if isinstance(made, StreamWriter):
        return made.stateful, made.mode
    raise UsageError(
        f"The pipeline's function returned {shown(made)}, which is no operator.",
        remedy="Return what apply(...) gives, or its writeStream with an output mode.",
    )
