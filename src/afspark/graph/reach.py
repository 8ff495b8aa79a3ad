"""Whom the items and the feedback of an operator can reach. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from afspark.graph.node import Node


def reached_from(targets: Mapping[str, Collection[str]], operator: str) -> set[str]:
    """The operators that can be reached from one; itself only by way of others.

    >>> sorted(reached_from({"gate": ["counts"], "counts": ["top"], "top": ["gate"]}, "counts"))
    ['counts', 'gate', 'top']
    """
    found: set[str] = set()
    ahead = list(targets[operator])
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += targets[name]
    return found


def targets_of(nodes: Sequence[Node]) -> dict[str, set[str]]:
    """To whom each operator sends items or feedback."""
    return {
        node.name: {*node.feeds_back, *(one.name for one in nodes if node.name in {edge.origin for edge in one.inputs})}
        for node in nodes
    }
