"""From the streams a user has composed to a pipeline the runtime can run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from afspark.api.stream import StatefulStream
from afspark.errors import UsageError
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.relay import with_relays
from afspark.sources import Pushed, Source


def assemble(sinks: Sequence[tuple[StatefulStream, str | None]], *, batch_bytes: int) -> Pipeline:
    """The pipeline of all operators that the sinks reach. ``sinks``: operators with their output modes, or None."""
    found: dict[int, StatefulStream] = {}
    for stateful, _ in sinks:
        _collect(stateful, found)
    modes = {stateful.name: mode for stateful, mode in sinks}
    names = _source_names(found.values())
    nodes = tuple(_node(stateful, modes.get(stateful.name), names) for stateful in found.values())
    by_name = {name: source for source, name in _by_name(found.values(), names)}
    nodes = with_relays(nodes, {name for name, source in by_name.items() if isinstance(source, Pushed)})
    readers = dict.fromkeys(names.values(), 1)
    for node in nodes:
        for edge in node.inputs:
            if edge.origin in readers:
                readers[edge.origin] = max(readers[edge.origin], node.workers)
    sources = {name: _sized(source, batch_bytes, readers[name]) for source, name in _by_name(found.values(), names)}
    return Pipeline(sources=sources, nodes=nodes)


def _collect(stateful: StatefulStream, found: dict[int, StatefulStream]) -> None:
    """Upstream first, each once."""
    if id(stateful) in found:
        return
    for inflow in stateful.inputs.inflows:
        if isinstance(inflow.origin, StatefulStream):
            _collect(inflow.origin, found)
    found[id(stateful)] = stateful


def _source_names(operators: Iterable[StatefulStream]) -> dict[int, str]:
    names: dict[int, str] = {}
    for source in _sources(operators):
        if id(source) not in names:
            names[id(source)] = SOURCE if not names else f"source{len(names) + 1}"
    return names


def _sources(operators: Iterable[StatefulStream]) -> list[Source | DataFrame]:
    return [
        inflow.origin
        for stateful in operators
        for inflow in stateful.inputs.inflows
        if not isinstance(inflow.origin, StatefulStream)
    ]


def _by_name(operators: Iterable[StatefulStream], names: dict[int, str]) -> list[tuple[Source | DataFrame, str]]:
    unique = {id(source): source for source in _sources(operators)}
    return [(source, names[key]) for key, source in unique.items()]


def _sized(source: Source | DataFrame, batch_bytes: int, workers: int) -> Source | DataFrame:
    if isinstance(source, Pushed):
        return replace(source, lanes=workers)
    if isinstance(source, Source):
        return source.sized_for(batch_bytes // (2 * max(workers, 1)))
    return source


def _node(stateful: StatefulStream, mode: str | None, names: dict[int, str]) -> Node:
    operator = stateful.operator
    inputs = tuple(
        Edge(
            inflow.origin.name if isinstance(inflow.origin, StatefulStream) else names[id(inflow.origin)],
            inflow.transforms,
        )
        for inflow in stateful.inputs.inflows
    )
    emits = mode == "update"
    if emits and stateful.window is not None:
        raise UsageError(
            f"{stateful.name!r} has windows, which are complete when they close.",
            remedy="Use outputMode('append').",
        )
    keyed = stateful.keyed
    if keyed is None:
        from_operators = any(edge.origin not in names.values() for edge in inputs)
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
