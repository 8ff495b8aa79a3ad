"""Makes a pipeline that can run of the streams that a user has composed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from afspark.api.stream import StatefulStream
from afspark.errors import UsageError
from afspark.graph.fusing import MapStep
from afspark.graph.graph import Graph, unused_name
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import REWRITES, Rewrite, rewritten
from afspark.graph.stream_frame import StreamFrame
from afspark.sources import Source


def assemble(
    sinks: Sequence[tuple[StatefulStream, str | None]], *, batch_bytes: int, rewrites: Sequence[Rewrite] = ()
) -> Pipeline:
    """The pipeline of all operators that the sinks reach. ``sinks``: operators with their output modes, or None;
    ``rewrites``: those that come after the usual ones.
    """
    pipeline = rewritten(composed(sinks), (*REWRITES, *rewrites))
    readers = dict.fromkeys(pipeline.sources, 1)
    for node in pipeline.nodes:
        for edge in node.inputs:
            if edge.origin in readers:
                readers[edge.origin] = max(readers[edge.origin], node.workers)
    divided = {name: source.divided(batch_bytes, readers[name]) for name, source in pipeline.planned.items()}
    return replace(pipeline, sources={**pipeline.sources, **divided})


def composed(sinks: Sequence[tuple[StatefulStream, str | None]]) -> Graph:
    """The graph as the user has composed it: a node for every operator, and one for every stateless step."""
    found: dict[int, StatefulStream] = {}
    for stateful, _ in sinks:
        _collect(stateful, found)
    modes = {stateful.name: mode for stateful, mode in sinks}
    sources = _sources(found.values())
    names = {key: f"source{number}" if number > 1 else SOURCE for number, key in enumerate(sources, start=1)}
    taken = {stateful.name for stateful in found.values()} | set(names.values())
    nodes: list[Node] = []
    for stateful in found.values():
        steps, inputs = _inputs(stateful, names, taken)
        nodes += [*steps, _node(stateful, modes.get(stateful.name), inputs)]
    return Graph(sources={names[key]: source for key, source in sources.items()}, nodes=tuple(nodes))


def _collect(stateful: StatefulStream, found: dict[int, StatefulStream]) -> None:
    """Upstream first, each once."""
    if id(stateful) in found:
        return
    for inflow in stateful.inputs.inflows:
        if inflow.sender is not None:
            _collect(inflow.sender, found)
    found[id(stateful)] = stateful


def _sources(operators: Iterable[StatefulStream]) -> dict[int, Source | StreamFrame]:
    """Each source once, by its identity, in the order of its first reader."""
    return {
        id(inflow.source): inflow.source
        for stateful in operators
        for inflow in stateful.inputs.inflows
        if inflow.source is not None
    }


def _inputs(stateful: StatefulStream, names: dict[int, str], taken: set[str]) -> tuple[list[Node], tuple[Edge, ...]]:
    """Nodes for the stateless steps in front of an operator, and the edges that lead to it."""
    steps: list[Node] = []
    edges = []
    for inflow in stateful.inputs.inflows:
        origin = names[id(inflow.source)] if inflow.sender is None else inflow.sender.name
        for transform in inflow.transforms:
            name = unused_name(f"{stateful.name}-map", taken)
            taken.add(name)
            inputs = (Edge(origin),)
            steps.append(
                Node(name=name, operator=MapStep(transform), inputs=inputs, workers=stateful.workers, internal=True)
            )
            origin = name
        edges.append(Edge(origin))
    return steps, tuple(edges)


def _node(stateful: StatefulStream, mode: str | None, inputs: tuple[Edge, ...]) -> Node:
    operator = stateful.operator
    emits = mode == "update"
    if emits and stateful.window is not None:
        raise UsageError(
            f"{stateful.name!r} has windows, which are complete when they close.",
            remedy="Use outputMode('append').",
        )
    keyed = stateful.keyed
    if keyed is None:
        from_operators = any(inflow.sender is not None for inflow in stateful.inputs.inflows)
        keyed = emits or (from_operators and bool(operator.key))
    return Node(
        name=stateful.name,
        operator=operator,
        inputs=inputs,
        workers=stateful.workers,
        tolerance=stateful.tolerance,
        keyed=keyed,
        window=stateful.window,
        weight=stateful.weight,
        feeds_back=stateful.feeds_back,
        emits=emits,
        appends=mode == "append" and stateful.window is None,
        on_bad=stateful.on_bad,
        bad_limit=stateful.bad_limit,
    )
