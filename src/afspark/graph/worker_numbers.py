"""Whether an operator may have another number of workers than its checkpoint has, and what becomes of its state. Pure.

State is divided anew from backups: what belongs to a key goes to the worker that owns it now, and local shares are kept
or added up. Pushed sources keep their lanes, and so do the relays that take items off them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from afspark.errors import CheckpointError
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.model.lone_table import is_lone_table
from afspark.model.operator import Operator


@dataclass(frozen=True, kw_only=True)
class NewNumber:
    """An operator that had ``former`` workers and is to have ``workers``; ``refused``: why that cannot be."""

    operator: str
    former: int
    workers: int
    refused: str = ""
    remedy: str = ""

    @property
    def text(self) -> str:
        """In words.

        >>> NewNumber(operator="counts", former=2, workers=3).text
        "'counts' is rescaled from 2 workers to 3"
        >>> NewNumber(operator="counts", former=1, workers=3).text
        "'counts' is rescaled from 1 worker to 3"
        """
        former = f"{self.former} worker{'s' if self.former != 1 else ''}"
        if not self.refused:
            return f"{self.operator!r} is rescaled from {former} to {self.workers}"
        return f"{self.operator!r} cannot go from {former} to {self.workers}, because {self.refused}"


def new_numbers(pipeline: Pipeline, former: Mapping[str, int]) -> list[NewNumber]:
    """The operators of the user that have others in number than before, and whether they may.

    ``former``: how many workers each had.
    """
    return [
        _judged(pipeline, node, former[node.name])
        for node in pipeline.operators
        if former.get(node.name, node.workers) != node.workers
    ]


def refuse_numbers(found: Iterable[NewNumber]) -> None:
    """`CheckpointError` for the first that cannot be."""
    for one in found:
        if one.refused:
            raise CheckpointError(
                f"{one.text}.", remedy=one.remedy, operator=one.operator, former=one.former, workers=one.workers
            )


def with_workers(pipeline: Pipeline, numbers: Mapping[str, int]) -> Pipeline:
    """The same pipeline with other numbers of workers, where ``numbers`` has some."""
    nodes = tuple(replace(node, workers=numbers.get(node.name, node.workers)) for node in pipeline.nodes)
    return replace(pipeline, nodes=nodes)


def with_lanes(pipeline: Pipeline, lanes: Mapping[str, int]) -> Pipeline:
    """The same pipeline with so many lanes of pushed sources, and workers of the relays that take items off them, where
    ``lanes`` has a number.
    """
    known = {name: number for name, number in lanes.items() if name in pipeline.pushed}

    def fitted(node: Node) -> Node:
        source = next((edge.origin for edge in node.inputs if edge.origin in known), None)
        return replace(node, workers=known[source]) if node.internal and source is not None else node

    sources = {name: replace(pipeline.pushed[name], lanes=number) for name, number in known.items()}
    nodes = tuple(fitted(node) for node in pipeline.nodes)
    return replace(pipeline, nodes=nodes, sources={**pipeline.sources, **sources})


def _judged(pipeline: Pipeline, node: Node, former: int) -> NewNumber:
    refused, remedy = _reason(pipeline, node)
    return NewNumber(operator=node.name, former=former, workers=node.workers, refused=refused, remedy=remedy)


def _reason(pipeline: Pipeline, node: Node) -> tuple[str, str]:
    """Why an operator has to keep its number of workers, and what to do; two empty texts if it has not."""
    operator, name = node.operator, type(node.operator).__name__
    keep = "Start it with as many workers as before, or with a new checkpoint."
    if not node.tolerance.needs_records:
        remedy = "Start it once more as it was, with MiniBatch(), and stop it; then change its workers."
        return "nothing is backed up under Nothing() that could be divided", remedy
    if node.window is not None and node.window.by == "count":
        return "windows by count end when each of so many workers has had its share", keep
    trained = {one.operator.training.model for one in pipeline.nodes if one.operator.training is not None}
    if operator.training is not None or node.name in trained:
        return "workers that train a model together are bound to their number", keep
    if any(edge.origin in pipeline.pushed for edge in node.inputs):
        return "each of its workers takes pushed items off a lane of its own", f"By key (keyed=True) it can. {keep}"
    if isinstance(operator.rescalable, str):
        return operator.rescalable, keep
    if operator.rescalable is False:
        return f"{name} declares rescalable = False", keep
    return _of_keyed(node, keep) if node.keyed else _of_local(node, keep)


def _of_keyed(node: Node, keep: str) -> tuple[str, str]:
    if type(node.operator).keys_of is not Operator.keys_of:
        return "", ""
    unknown = [state for state, spec in node.operator.states().items() if not spec.disjoint]
    if not unknown:
        return "", ""
    why = f"nobody knows which keys the cells of its state {unknown[0]!r} belong to"
    return why, f"Declare operator_key=True if it has the operator's key, or write keys_of(). {keep}"


def _of_local(node: Node, keep: str) -> tuple[str, str]:
    specs = node.operator.states()
    apart = [state for state, spec in specs.items() if not spec.mergeable]
    if apart:
        return f"shares of its state {apart[0]!r} cannot be added up", keep
    # Results that the operator makes itself may be anything but sums: then only it can know.
    if not specs or is_lone_table(node.operator) or node.operator.rescalable:
        return "", ""
    why = "nobody knows whether the shares of its states can be added up"
    return why, f"Declare rescalable = True if they can, and an empty one more changes no result. {keep}"
