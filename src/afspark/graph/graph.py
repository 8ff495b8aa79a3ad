"""A graph of sources and nodes: what a user has composed, and what each rewrite makes of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from afspark.graph.node import Node
from afspark.graph.stream_frame import StreamFrame
from afspark.sources import Pushed, Source


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Sources by name, and the nodes that read from them and from each other. Nothing about it is checked yet."""

    sources: Mapping[str, Source | StreamFrame]
    nodes: tuple[Node, ...]

    @property
    def planned(self) -> dict[str, Source]:
        """The sources that afspark plans itself."""
        return {name: source for name, source in self.sources.items() if isinstance(source, Source)}

    @property
    def frames(self) -> dict[str, StreamFrame]:
        """The DataFrames, which Spark plans and reads."""
        return {name: source for name, source in self.sources.items() if isinstance(source, StreamFrame)}

    @property
    def pushed(self) -> dict[str, Pushed]:
        """The sources whose items producers push."""
        return {name: source for name, source in self.sources.items() if isinstance(source, Pushed)}


def unused_name(wanted: str, taken: Collection[str]) -> str:
    """A name for a node that a user has not written, as close to ``wanted`` as the names of the others allow.

    >>> unused_name("relay", {"count"}), unused_name("relay", {"relay", "relay-"})
    ('relay', 'relay--')
    """
    while wanted in taken:
        wanted += "-"
    return wanted
