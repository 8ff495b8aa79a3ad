"""Where pushed items enter a pipeline whose first operator cannot take them off the lanes itself.

Items of a receiver can be taken once, by the worker of their lane. An operator that wants them by key, several
operators that want the same ones, or one that has other inputs, get them from a relay: a stateless operator that
takes items off the lanes and passes them on over the exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from afspark.model.operator import Operator
from afspark.runtime.pipeline import Edge, Node


class Relay(Operator):
    """Passes on what it gets."""

    #: it has no state; an item that it loses is one item less for the operators after it
    alpha = 1.0

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items


def with_relays(nodes: tuple[Node, ...], pushed: set[str]) -> tuple[Node, ...]:
    """The nodes, with a relay for every pushed source that its readers cannot take themselves."""
    readers = Counter(edge.origin for node in nodes for edge in node.inputs)
    relays: dict[str, Node] = {}
    changed = []
    for node in nodes:
        inputs = []
        for edge in node.inputs:
            if edge.origin in pushed and _needs_relay(node, readers[edge.origin]):
                name = f"relay-{edge.origin}" if edge.origin else "relay"
                workers = max(node.workers, relays[name].workers if name in relays else 0)
                relays[name] = Node(
                    name=name,
                    operator=Relay(),
                    inputs=(Edge(edge.origin),),
                    workers=workers,
                    tolerance=node.tolerance,
                )
                inputs.append(replace(edge, origin=name))
            else:
                inputs.append(edge)
        changed.append(replace(node, inputs=tuple(inputs)))
    return (*relays.values(), *changed)


def _needs_relay(node: Node, readers: int) -> bool:
    return node.keyed or readers > 1 or len(node.inputs) > 1 or bool(node.feeds_back)
