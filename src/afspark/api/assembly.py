"""Makes a pipeline that can run of the streams that a user has composed."""

from __future__ import annotations

from collections import Counter
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
    every = (*REWRITES, *rewrites)
    # Checked as the user has named it, whatever its checkpoint calls the operators.
    pipeline = rewritten(composed(sinks), every)
    by_id = composed(sinks, by_id=True)
    if any(node.title != node.name for node in by_id.nodes):
        pipeline = rewritten(by_id, every)
    readers = dict.fromkeys(pipeline.sources, 1)
    for node in pipeline.nodes:
        for edge in node.inputs:
            if edge.origin in readers:
                readers[edge.origin] = max(readers[edge.origin], node.workers)
    divided = {name: source.divided(batch_bytes, readers[name]) for name, source in pipeline.planned.items()}
    return replace(pipeline, sources={**pipeline.sources, **divided})


def composed(sinks: Sequence[tuple[StatefulStream, str | None]], *, by_id: bool = False) -> Graph:
    """The graph as the user has composed it: a node for every operator, and one for every stateless step.

    ``by_id``: nodes are named as a checkpoint knows them; otherwise by the names that the user has given.
    """
    found: dict[int, StatefulStream] = {}
    for stateful, _ in sinks:
        _collect(stateful, found)
    modes = {stateful.name: mode for stateful, mode in sinks}
    sources = _sources(found.values())
    names = {key: f"source{number}" if number > 1 else SOURCE for number, key in enumerate(sources, start=1)}
    known = {key: one.id or one.name if by_id else one.name for key, one in found.items()}
    _refuse_shared_ids(known.values() if by_id else ())
    ids = {one.name: known[key] for key, one in found.items()}
    taken = {*known.values(), *names.values()}
    nodes: list[Node] = []
    for key, stateful in found.items():
        steps, inputs = _inputs(stateful, known[key], names | known, taken)
        feeds_back = tuple(ids.get(target, target) for target in stateful.feeds_back)
        nodes += [*steps, _node(stateful, known[key], modes.get(stateful.name), inputs, feeds_back)]
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


def _refuse_shared_ids(ids: Iterable[str]) -> None:
    twins = [one for one, count in Counter(ids).items() if count > 1]
    if twins:
        raise UsageError(
            f"Two operators have the id {twins[0]!r}.",
            remedy="Give each its own: apply(..., id=...); without one it is the name.",
        )


def _inputs(
    stateful: StatefulStream, known: str, names: dict[int, str], taken: set[str]
) -> tuple[list[Node], tuple[Edge, ...]]:
    """Nodes for the stateless steps in front of an operator, and the edges that lead to it. ``known``: its name in the
    graph; ``names``: those of sources and senders.
    """
    steps: list[Node] = []
    edges = []
    for inflow in stateful.inputs.inflows:
        origin = names[id(inflow.source if inflow.sender is None else inflow.sender)]
        for transform in inflow.transforms:
            name = unused_name(f"{known}-map", taken)
            taken.add(name)
            inputs = (Edge(origin),)
            steps.append(
                Node(name=name, operator=MapStep(transform), inputs=inputs, workers=stateful.workers, internal=True)
            )
            origin = name
        edges.append(Edge(origin))
    return steps, tuple(edges)


def _node(
    stateful: StatefulStream, name: str, mode: str | None, inputs: tuple[Edge, ...], feeds_back: tuple[str, ...]
) -> Node:
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
        name=name,
        alias=stateful.name,
        operator=operator,
        inputs=inputs,
        workers=stateful.workers,
        tolerance=stateful.tolerance,
        keyed=keyed,
        window=stateful.window,
        weight=stateful.weight,
        feeds_back=feeds_back,
        emits=emits,
        appends=mode == "append" and stateful.window is None,
        on_bad=stateful.on_bad,
        bad_limit=stateful.bad_limit,
    )
