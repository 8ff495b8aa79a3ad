"""Where pushed items enter a pipeline whose first operator cannot take them off the lanes itself.

Items of a receiver can be taken once, by the worker of their lane. An operator that wants them by key, several
operators that want the same ones, or one that has other inputs, get them from a relay: a stateless operator that
takes items off the lanes and passes them on over the exchange. It is no operator of the user's: it has no part of the
budget, and what its lanes lose is lost to the operators that read from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from afspark.graph.graph import Graph, unused_name
from afspark.graph.node import Edge, Node
from afspark.model.operator import Operator


class Relay(Operator):
    """Passes on what it gets."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items


def add_relays(graph: Graph) -> Graph:
    """The graph with a relay for every pushed source that its readers cannot take themselves."""
    readers = Counter(edge.origin for node in graph.nodes for edge in node.inputs)
    names = {node.name for node in graph.nodes}
    relays: dict[str, Node] = {}
    changed = []
    for node in graph.nodes:
        inputs = []
        for edge in node.inputs:
            if edge.origin in graph.pushed and _needs_relay(node, readers[edge.origin]):
                name = relay_name(edge.origin, names)
                workers = max(node.workers, relays[name].workers if name in relays else 0)
                relays[name] = Node(
                    name=name,
                    operator=Relay(),
                    inputs=(Edge(edge.origin),),
                    workers=workers,
                    internal=True,
                )
                inputs.append(replace(edge, origin=name))
            else:
                inputs.append(edge)
        changed.append(replace(node, inputs=tuple(inputs)))
    return replace(graph, nodes=(*relays.values(), *changed))


def relay_name(source: str, taken: Collection[str]) -> str:
    """What the relay of a source is called."""
    return unused_name(f"relay-{source}" if source else "relay", taken)


def _needs_relay(node: Node, readers: int) -> bool:
    return node.keyed or readers > 1 or len(node.inputs) > 1 or bool(node.feeds_back)
