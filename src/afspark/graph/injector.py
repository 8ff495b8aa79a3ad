"""The fault injector: a node in front of an operator that makes its items suffer a fault, and the rewrite that adds it.

Section 4.1 of "Fault injection-based assessment of partial fault tolerance" calls it FIOP. It forwards items until an
offset, does to a span of them what the fault does, and then forwards again; the state of the operator behind it stays
what it was. It is no operator of the user's, and one that does nothing to any span changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from afspark.graph.graph import Graph, unused_name
from afspark.graph.node import Edge, Node
from afspark.model.operator import Operator
from afspark.model.states import Numeric, StateSpec
from afspark.policies import MiniBatch, Nothing


@dataclass(frozen=True, order=True)
class Inlet:
    """One input of an operator: the operator that reads, and the number of the input among its inputs.

    ``behind``: it is none of its inputs, but what the operator gives out to a sink.
    """

    reader: str
    number: int = 0
    behind: bool = False

    @property
    def side(self) -> tuple[str, bool]:
        """What all inputs of an operator have in common, and its output has not."""
        return self.reader, self.behind


@dataclass(frozen=True)
class Span:
    """Items of one worker: those after the first ``offset`` ones, ``items`` in number."""

    offset: int
    items: int

    def within(self, seen: int, rows: int) -> tuple[int, int]:
        """The part of it in an Arrow batch of so many rows that follows ``seen`` items: first row, and row after it.

        >>> Span(100, 20).within(90, 15), Span(100, 20).within(105, 50), Span(100, 20).within(120, 5)
        ((10, 15), (0, 15), (0, 0))
        """
        first = min(max(self.offset - seen, 0), rows)
        last = min(max(self.offset + self.items - seen, 0), rows)
        return (first, last) if first < last else (0, 0)


@dataclass(frozen=True)
class StreamFault:
    """What happens to a span of items. ``spans``: that of each worker; none: nothing happens."""

    spans: tuple[Span, ...] = ()

    def befall(self, items: pa.RecordBatch, seen: int, worker: int) -> Sequence[pa.RecordBatch]:
        """What becomes of an Arrow batch of a worker that has seen so many items before."""
        span = self.spans[worker] if worker < len(self.spans) else Span(0, 0)
        first, last = span.within(seen, items.num_rows)
        if first == last:
            return [items]
        changed = self._changed(items.slice(first, last - first), seen + first)
        return [items.slice(0, first), *changed, items.slice(last)]

    def _changed(self, items: pa.RecordBatch, position: int) -> Sequence[pa.RecordBatch]:
        return [items]


class BurstLoss(StreamFault):
    """The span is lost: its operator was away for so long."""

    def _changed(self, items: pa.RecordBatch, position: int) -> Sequence[pa.RecordBatch]:
        return []


class Duplication(StreamFault):
    """The span comes twice, one Arrow batch after the other: its sender has sent it again."""

    def _changed(self, items: pa.RecordBatch, position: int) -> Sequence[pa.RecordBatch]:
        return [items, items]


@dataclass(frozen=True)
class Reordering(StreamFault):
    """The items of the span come in another order, within each Arrow batch; ``seed`` decides in which."""

    seed: int = 0

    def _changed(self, items: pa.RecordBatch, position: int) -> Sequence[pa.RecordBatch]:
        order = np.random.default_rng([self.seed, position]).permutation(items.num_rows)
        return [items.take(pa.array(order))]


class Injector(Operator):
    """Passes on what it gets, except where the fault strikes; ``seen`` counts all items that came."""

    def __init__(self, fault: StreamFault) -> None:
        self.fault = fault

    def states(self) -> Mapping[str, StateSpec]:
        return {"seen": Numeric(value="int64", exact=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        seen = states["seen"]
        left = self.fault.befall(items, int(seen.value), self.context.worker)
        seen.add(items.num_rows)
        kept = [batch for batch in left if batch.num_rows]
        if len(kept) <= 1:
            return kept[0] if kept else None
        return pa.concat_batches(kept)


def injecting(faults: Mapping[Inlet, StreamFault]) -> Callable[[Graph], Graph]:
    """The rewrite that puts an injector in front of each of these inputs, or behind the last operator.

    Those of a reader have to be there all, so that their order stays what it was.
    """

    def rewrite(graph: Graph) -> Graph:
        names = {node.name for node in graph.nodes}
        workers = {node.name: node.workers for node in graph.nodes}
        nodes: list[Node] = []
        for node in graph.nodes:
            inputs = []
            passing = partial(Node, internal=True, tolerance=MiniBatch() if node.tolerance.needs_records else Nothing())
            for number, edge in enumerate(node.inputs):
                fault = faults.get(Inlet(node.name, number))
                if fault is None:
                    inputs.append(edge)
                    continue
                name = injector_name(Inlet(node.name, number), names)
                nodes.append(
                    passing(
                        name=name,
                        operator=Injector(fault),
                        inputs=(Edge(edge.origin),),
                        # Each of its workers passes on what one sender has sent, or one reader would have read.
                        workers=workers.get(edge.origin, node.workers),
                        stands_for=node.name,
                    )
                )
                inputs.append(replace(edge, origin=name))
            nodes.append(replace(node, inputs=tuple(inputs)))
            if (fault := faults.get(Inlet(node.name, behind=True))) is not None:
                name = injector_name(Inlet(node.name, behind=True), names)
                source = (Edge(node.name),)
                nodes.append(
                    passing(name=name, operator=Injector(fault), inputs=source, workers=node.workers, appends=True)
                )
        return replace(graph, nodes=tuple(nodes))

    return rewrite


def injector_name(inlet: Inlet, taken: set[str]) -> str:
    """What the injector of an input is called, among nodes with the names ``taken``."""
    return unused_name(f"{inlet.reader}-injector{'-out' if inlet.behind else inlet.number or ''}", taken)
