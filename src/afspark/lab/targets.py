"""Where faults are injected: the four placement rules of section 4.2, and which operator behaves like which target.

An injector stands in front of its target. A fault elsewhere has the same effect as one in the operator upstream, so
most operators need no trials of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from afspark.errors import UsageError
from afspark.graph.graph import Graph, unused_name
from afspark.graph.injector import Inlet
from afspark.graph.node import SOURCE, Node
from afspark.lab.study_result import Placement

SEPARATOR = "+"
"""Between the names of targets that fail together."""


@dataclass(frozen=True)
class Target:
    """Where a fault strikes. Each group of inputs loses as many items as the outage has; the inputs of a group share
    them.
    """

    name: str
    groups: tuple[tuple[Inlet, ...], ...]
    #: why it is one
    reason: str

    @property
    def inlets(self) -> tuple[Inlet, ...]:
        return tuple(inlet for group in self.groups for inlet in group)


def source_names(graph: Graph) -> dict[str, str]:
    """What each source is called as a target."""
    taken = {node.name for node in graph.nodes}
    return {name: unused_name("source" if name == SOURCE else name, taken) for name in graph.sources}


def place_injectors(
    graph: Graph, *, only: Sequence[str] | None = None, add: Iterable[str] = (), remove: Iterable[str] = ()
) -> tuple[list[Target], list[Placement]]:
    """The targets by the rules, or ``only`` those named, more or fewer as the user says; and for every operator the
    target that stands for it.

    ``only`` and ``add`` also take an input of an operator (``index.vwap``), an operator's output (``index>``), and
    several that fail together (``index+vwap``), which lose what comes to them from others.
    """
    chosen, followers = _by_rules(graph)
    known = _known(graph)
    found: dict[str, Target] = {target.name: target for target in chosen}
    if only is not None:
        found = {name: found.get(name) or _named(graph, name, known) for name in only}
    for name in add:
        found.setdefault(name, _named(graph, name, known))
    for name in remove:
        if name not in found:
            raise UsageError(f"{name!r} is no target.", remedy=f"Targets are {', '.join(found)}.", target=name)
        del found[name]
    if not found:
        raise UsageError("No target is left.", remedy="Remove fewer, or name some.")
    placements = [Placement(target.name, target.name, target.reason) for target in found.values()]
    for one in followers:
        if one.operator not in found:
            like = one.target if one.target in found else None
            placements.append(Placement(one.operator, like, one.reason if like else "its target was left out"))
    return list(found.values()), placements


def uneven_readers(graph: Graph, target: Target) -> Iterator[str]:
    """A sentence for each source that fails with a target and is read by different numbers of workers.

    Each of them loses its part of an outage, so that two workers lose other items than one does.
    """
    workers = {node.name: node.workers for node in graph.nodes}
    for name, title in source_names(graph).items():
        readers = {inlet.reader: workers[inlet.reader] for inlet in _outlets(graph, name)}
        if title in target.name.split(SEPARATOR) and len(set(readers.values())) > 1:
            yield (
                f"{title}: its readers {', '.join(readers)} have {', '.join(map(str, readers.values()))} workers, and"
                " lose as many items of an outage, but not the same ones. Give them as many workers for the study."
            )


def _by_rules(graph: Graph) -> tuple[list[Target], list[Placement]]:
    """Breadth first, from the sources to the sink."""
    named = source_names(graph)
    readers = {
        origin: [node.name for node in graph.nodes for edge in node.inputs if edge.origin == origin]
        for origin in [*graph.sources, *(node.name for node in graph.nodes)]
    }
    nodes = {node.name: node for node in graph.nodes}
    targets = [_source(graph, name, title) for name, title in named.items()]
    followers: list[Placement] = []
    like = dict(named)
    waiting = [name for origin in graph.sources for name in readers[origin]]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        node = nodes[name]
        if name in seen or any(edge.origin not in like for edge in node.inputs):
            continue
        seen.add(name)
        waiting += readers[name]
        origins = [edge.origin for edge in node.inputs]
        reasons = []
        if shared := [origin for origin in origins if len(readers[origin]) > 1]:
            reasons.append(f"{_title(shared[0], named)} sends to {len(readers[shared[0]])} operators")
        if len(origins) > 1:
            reasons.append(f"it has {len(origins)} inputs")
        if behind := [origin for origin in origins if origin in nodes and sends_by_state(nodes[origin])]:
            reasons.append(f"{behind[0]} has a state")
        if reasons:
            like[name] = name
            targets.append(_operator(graph, name, " and ".join(reasons)))
        else:
            like[name] = like[origins[0]]
            upstream = _title(origins[0], named)
            why = f"its only input comes from {upstream}, which has no other reader and sends by no state"
            followers.append(Placement(name, like[name], why))
    return targets, followers


def sends_by_state(node: Node) -> bool:
    """Whether what an operator sends depends on a state of its own."""
    return bool(node.operator.states()) and node.operator.sends_by_state


def _title(origin: str, named: Mapping[str, str]) -> str:
    return named.get(origin, origin)


def _source(graph: Graph, name: str, title: str) -> Target:
    return Target(title, tuple((inlet,) for inlet in _outlets(graph, name)), "it is a source")


def _operator(graph: Graph, name: str, reason: str) -> Target:
    (node,) = (one for one in graph.nodes if one.name == name)
    return Target(name, (tuple(Inlet(name, number) for number in range(len(node.inputs))),), reason)


def _outlets(graph: Graph, origin: str) -> list[Inlet]:
    return [
        Inlet(node.name, number)
        for node in graph.nodes
        for number, edge in enumerate(node.inputs)
        if edge.origin == origin
    ]


def _known(graph: Graph) -> dict[str, Target]:
    """All that can be a target by itself."""
    asked = "you asked for it"
    titles = source_names(graph)
    known = {title: _source(graph, name, title) for name, title in titles.items()}
    for node in graph.nodes:
        known[node.name] = _operator(graph, node.name, asked)
        for number, edge in enumerate(node.inputs):
            title = f"{node.name}.{_title(edge.origin, titles)}"
            known.setdefault(title, Target(title, ((Inlet(node.name, number),),), asked))
        outlets = _outlets(graph, node.name)
        if node.appends:
            outlets.append(Inlet(node.name, behind=True))
        if outlets:
            title = f"{node.name}>"
            known[title] = Target(title, tuple((inlet,) for inlet in outlets), asked)
    return known


def _named(graph: Graph, name: str, known: Mapping[str, Target]) -> Target:
    if name in known:
        return known[name]
    parts = [known.get(part) for part in name.split(SEPARATOR)]
    unknown = [part for part, found in zip(name.split(SEPARATOR), parts, strict=True) if found is None]
    if unknown:
        raise UsageError(
            f"There is no target {unknown[0]!r}.", remedy=f"There are {', '.join(known)}.", target=unknown[0]
        )
    inlets = [inlet for part in parts if part is not None for inlet in part.inlets]
    if len(set(inlets)) < len(inlets):
        raise UsageError(f"{name!r} names the same input twice.", remedy="Name what fails together once.", target=name)
    return Target(name, (_entrances(graph, inlets),), "you asked for it")


def _entrances(graph: Graph, inlets: Sequence[Inlet]) -> tuple[Inlet, ...]:
    """Those of the inputs that still get items while all of them lose theirs.

    An injector counts what comes: behind an operator that gets nothing it would take what comes after the outage.
    """
    lost = set(inlets)
    silent: set[str] = set()
    while found := {
        node.name
        for node in graph.nodes
        if node.name not in silent
        and all(Inlet(node.name, at) in lost or edge.origin in silent for at, edge in enumerate(node.inputs))
    }:
        silent |= found
    origins = {Inlet(node.name, at): edge.origin for node in graph.nodes for at, edge in enumerate(node.inputs)}
    return tuple(inlet for inlet in inlets if origins.get(inlet, inlet.reader) not in silent)
