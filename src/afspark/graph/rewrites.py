"""The rewrites that turn what a user has composed into what runs, in the order in which they are applied.

A rewrite takes a graph and gives another one. A node that it adds is ``internal``: it has no part of the budget, no
weight, and no place in the fingerprint or in what users see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from afspark.graph.fusing import fuse_steps
from afspark.graph.graph import Graph
from afspark.graph.pipeline import Pipeline
from afspark.graph.relay import add_relays

Rewrite = Callable[[Graph], Graph]

#: Steps are fused first, so that a relay is put behind the source itself and steps run behind the relay.
REWRITES: tuple[Rewrite, ...] = (fuse_steps, add_relays)


def rewritten(graph: Graph, rewrites: Sequence[Rewrite] = REWRITES) -> Pipeline:
    """The checked pipeline that remains after all rewrites; UsageError if it cannot run."""
    for rewrite in rewrites:
        graph = rewrite(graph)
    return Pipeline(sources=graph.sources, nodes=graph.nodes)
