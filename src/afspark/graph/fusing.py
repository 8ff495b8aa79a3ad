"""Stateless steps, and the rewrite that fuses them into the edge of the operator that reads them.

A fused step runs in the same pass as the reading of its items, and costs neither a stage nor an exchange.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from afspark.graph.graph import Graph
from afspark.graph.node import Edge, Node
from afspark.model.operator import Operator, Transform


class MapStep(Operator):
    """Sends on what a function of the user's makes of its items."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        return self.transform(items)


def fuse_steps(graph: Graph) -> Graph:
    """The graph without nodes for stateless steps: the edges that led from them carry their functions instead."""
    steps = {node.name: (node.inputs[0], node.operator) for node in graph.nodes if isinstance(node.operator, MapStep)}
    rest = [node for node in graph.nodes if node.name not in steps]
    return replace(graph, nodes=tuple(_with_fused_inputs(node, steps) for node in rest))


def _with_fused_inputs(node: Node, steps: Mapping[str, tuple[Edge, MapStep]]) -> Node:
    inputs = tuple(_fused(edge, steps) for edge in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _fused(edge: Edge, steps: Mapping[str, tuple[Edge, MapStep]]) -> Edge:
    while edge.origin in steps:
        before, step = steps[edge.origin]
        edge = Edge(before.origin, (*before.transforms, step.transform, *edge.transforms))
    return edge
