"""A pipeline as the coordinator runs it: a checked graph of plain values."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from afspark.bounds import Place, weights
from afspark.errors import UsageError
from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.reach import reached_from, targets_of
from afspark.graph.stream_frame import StreamFrame
from afspark.model.onbad import SKIP, STOP, OnBad
from afspark.model.operator import Operator
from afspark.policies import ItemLimits, item_limits
from afspark.sources import Source


@dataclass(frozen=True, kw_only=True)
class Pipeline(Graph):
    """A graph that can run; its ``nodes`` come in an order in which every node follows its inputs."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise UsageError("A pipeline needs at least one operator.")
        _refuse_twins([node.name for node in self.nodes])
        object.__setattr__(self, "nodes", tuple(_in_order(self.nodes, set(self.sources))))
        self._weights  # noqa: B018 - refused here rather than in the first batch
        for node in self.nodes:
            self._refuse_uneven_counts(node)
        for node in self.nodes:
            for target in node.feeds_back:
                if target not in self.upstream_of(node.name):
                    raise UsageError(
                        f"{node.name!r} sends feedback to {target!r}, which is not upstream of it.",
                        remedy="Feedback goes to an operator whose items reach the sender.",
                    )
        self._refuse_snapshots()
        self._refuse_secondaries()
        self._refuse_gaps()
        self._refuse_training()
        if len(self.sources) > 1 and self.frames:
            raise UsageError(
                "A pipeline reads either one DataFrame or any number of files and generators.",
                remedy="Union the DataFrames with Spark before the pipeline begins.",
            )

    @property
    def keeps_records(self) -> bool:
        """Whether a query needs commit records: for backups, or for more than those."""
        return self.records_progress or any(node.tolerance.needs_records for node in self.nodes)

    @property
    def records_progress(self) -> bool:
        """Whether windows, feedback or positions of receivers have to go on where they were, with or without backups of
        state: records alone know of them.
        """
        return len(self.nodes) > 1 or bool(self.pushed) or any(node.window is not None for node in self.nodes)

    @property
    def replayable(self) -> bool:
        """Whether a lost worker can apply batches again that no record covers: all items can be read once more, and
        every operator is given a state back to begin with.
        """
        return (
            all(source.replayable or name in self.retained for name, source in self.planned.items())
            and not any(frame.not_replayable for frame in self.frames.values())
            and all(node.tolerance.needs_records for node in self.nodes)
            and not (self.trains and not all(node.tolerance.exact for node in self.nodes))
        )

    @property
    def trains(self) -> bool:
        """Whether workers train a model together. They replay a batch together as well, which takes everybody back to
        the durable record: nobody may have lost anything there.
        """
        return any(node.operator.training is not None for node in self.nodes)

    @cached_property
    def retained(self) -> frozenset[str]:
        """The pushed sources whose items are kept until a durable record covers them, by their senders or in the log: a
        reader of theirs is backed up at barriers only.
        """
        entering = [(edge.origin, node) for node in self.nodes for edge in node.inputs if edge.origin in self.pushed]
        return frozenset(
            name for name, node in entering if any(reader.tolerance.replays for reader in self.readers(node))
        )

    def _refuse_snapshots(self) -> None:
        """Between two snapshots nothing is durable but the source's items, or those that senders and logs keep."""
        asking = [node.name for node in self.nodes if node.tolerance.replays]
        if not asking or self.replayable:
            return
        reasons = [frame.not_replayable for frame in self.frames.values() if frame.not_replayable]
        bare = [node.name for node in self.nodes if not node.tolerance.needs_records]
        inexact = [node.name for node in self.nodes if not node.tolerance.exact]
        if reasons:
            why = f"this DataFrame cannot be replayed: {reasons[0]}"
            remedy = (
                "Use MiniBatch(); or frame(df, replayable=True), if only its source is in doubt and keeps its rows."
            )
        elif bare:
            why = f"{bare[0]!r} under Nothing() has no state to be replayed upon"
            remedy = f"Give {bare[0]!r} a tolerance that backs up."
        elif inexact and self.trains:
            why = f"those who train a model go back together, which {inexact[0]!r} could not exactly"
            remedy = "Give the workers and the model exact tolerances, or Approximate() to both."
        else:
            why = "a pushed source has no reader with barrier snapshots, so that nobody keeps its items"
            remedy = "Give every pushed source such a reader, or use MiniBatch()."
        raise UsageError(
            f"{asking[0]!r} asks for barrier snapshots, which are replayed from the source, and {why}.",
            remedy=remedy,
            operator=asking[0],
        )

    def _refuse_secondaries(self) -> None:
        """A secondary reads the items that its primary has read, and makes up for nothing that was not replayed."""
        followed = [node for node in self.nodes if node.tolerance.has_secondaries]
        if followed and self.pushed:
            raise UsageError(
                f"{followed[0].name!r} asks for secondaries, which cannot follow a pushed source.",
                remedy="Use BarrierSnapshot() or UpstreamBackup().",
                operator=followed[0].name,
            )

    def _refuse_training(self) -> None:
        """Whoever trains a model feeds on what the operator that has it has made of the batch before."""
        for node in self.nodes:
            training = node.operator.training
            if training is None:
                continue
            found = [one for one in self.nodes if one.title == training.model]
            if not found or node.name not in found[0].feeds_back:
                raise UsageError(
                    f"{node.name!r} trains the model of {training.model!r}, which does not feed back to it.",
                    remedy=f"Have {training.model!r} read from {node.name!r}, with feeds_back=[{node.name!r}].",
                    operator=node.name,
                )
            for one in (node, found[0]):
                if one.tolerance.has_secondaries:
                    raise UsageError(
                        f"{one.name!r} asks for secondaries, which cannot train a model.",
                        remedy="Use BarrierSnapshot(), MiniBatch() or Approximate().",
                        operator=one.name,
                    )
                if one.window is not None:
                    raise UsageError(f"{one.name!r} trains a model, which has no windows.", operator=one.name)
            if any(edge.origin in self.pushed for edge in node.inputs):
                raise UsageError(
                    f"{node.name!r} trains a model on pushed items, which cannot be read again.",
                    remedy="Train on files, generators or a DataFrame.",
                    operator=node.name,
                )

    def _refuse_gaps(self) -> None:
        """A worker that leaves batches out has kept nothing of them for those that would replay them."""
        targets = targets_of(self.nodes)
        for node in self.nodes:
            if not node.tolerance.leaves_gap:
                continue
            if self.pushed:
                raise UsageError(
                    f"{node.name!r} asks for a gap, and pushed items that no record covers are always replayed.",
                    remedy="Leave out gap=True, or use UpstreamBackup().",
                    operator=node.name,
                )
            precise = [name for name in reached_from(targets, node.name) if not self.node(name).tolerance.leaves_gap]
            if precise:
                raise UsageError(
                    f"{node.name!r} asks for a gap, and could not send again what {min(precise)!r} would have to"
                    " replay.",
                    remedy=f"Give {min(precise)!r} one of the six schemes with gap=True as well, or leave it out.",
                    operator=node.name,
                )

    def _refuse_uneven_counts(self, node: Node) -> None:
        """A window by count ends when every worker has had its share, which only even shares can promise."""
        if node.window is None or node.window.by != "count" or node.workers == 1:
            return
        pushed = any(edge.origin in self.pushed for edge in node.inputs)
        if pushed or node.keyed or any(edge.origin not in self.sources for edge in node.inputs):
            raise UsageError(
                f"{node.name!r} has windows by count, and its workers may get unequal numbers of items.",
                remedy="Give it one worker, or let it read the source without a key.",
            )

    @classmethod
    def single(
        cls, *, source: Source | StreamFrame, operator: Operator, name: str = "operator", **node: Any
    ) -> Pipeline:
        """One source, one operator."""
        transforms = tuple(node.pop("transforms", ()))
        return cls(
            sources={SOURCE: source},
            nodes=(Node(name=name, operator=operator, inputs=(Edge(SOURCE, transforms),), **node),),
        )

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def called(self, title: str) -> Node:
        """The operator that the user calls so."""
        return next(node for node in self.nodes if node.title == title)

    @cached_property
    def ancestors(self) -> dict[str, frozenset[str]]:
        """The operators whose items reach each operator."""
        found: dict[str, frozenset[str]] = {}
        for node in self.nodes:
            direct = [edge.origin for edge in node.inputs if edge.origin not in self.sources]
            found[node.name] = frozenset(direct).union(*(found[origin] for origin in direct))
        return found

    def upstream_of(self, name: str) -> frozenset[str]:
        return self.ancestors[name]

    def downstream_of(self, name: str) -> list[str]:
        return [node.name for node in self.nodes if name in self.ancestors[node.name]]

    @property
    def operators(self) -> list[Node]:
        """The operators that the user has written."""
        return [node for node in self.nodes if not node.internal]

    @cached_property
    def titles(self) -> dict[str, str]:
        """What the user calls operators whose id is another one, by id."""
        return {node.name: node.title for node in self.operators if node.title != node.name}

    @cached_property
    def _internal(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes if node.internal}

    @cached_property
    def _weights(self) -> dict[str, float]:
        found = weights([node.weight for node in self.operators])
        return {node.name: weight for node, weight in zip(self.operators, found, strict=True)}

    def place(self, node: Node) -> Place:
        """What divides the budget of an operator; an internal node has none that could be divided."""
        if node.internal:
            return Place(workers=node.workers)
        below = [one for one in self.operators if node.name in self.ancestors[one.name]]
        fan_out = max(one.operator.fan_out for one in [node, *below])
        return Place(
            workers=node.workers,
            keyed=node.keyed,
            weight=self._weights[node.name],
            fan_out=fan_out,
            downstream=self._depth(node.name),
        )

    # --- pushed items ---------------------------------------------------------------------------------------

    def readers(self, node: Node) -> list[Node]:
        """The user's operators that a node takes items off the lanes for: itself, or those behind internal nodes."""
        if not node.internal:
            return [node]
        behind = [one for one in self.nodes if node.name in _origins(one)]
        found = {reader.name: reader for one in behind for reader in self.readers(one)}
        return list(found.values())

    def entrances(self, node: Node) -> list[Node]:
        """The nodes that take pushed items off the lanes for an operator: itself, or relays; none for other items.

        A relay that it reads from twice is there twice, because it loses an item twice.
        """
        if not _origins(node).isdisjoint(self.pushed):
            return [node]
        origins = [self._internal[edge.origin] for edge in node.inputs if edge.origin in self._internal]
        return [entrance for origin in origins for entrance in self.entrances(origin)]

    def item_limits(self, entrance: Node) -> ItemLimits:
        """What the receiver may hold of the items that ``entrance`` takes, by the tolerance of all their readers."""
        readers = self.readers(entrance)
        lanes = [sum(one.workers for one in self.entrances(reader)) for reader in readers]
        return item_limits(
            (reader.tolerance, replace(self.place(reader), workers=number))
            for reader, number in zip(readers, lanes, strict=True)
        )

    def on_bad(self, node: Node) -> dict[str, OnBad]:
        """What happens to bad items of an operator, by input."""
        chosen = node.on_bad or node.operator.on_bad
        return {edge.origin: chosen or self._inherited(edge.origin) for edge in node.inputs}

    def spares_null_keys(self, node: Node) -> bool:
        """Whether rows without a key are left out: always, unless the user has asked for a stop."""
        asked = node.on_bad or node.operator.on_bad
        return asked is None and all(source.on_bad != STOP for source in self.pushed.values())

    def _inherited(self, origin: str) -> OnBad:
        """Pushed items cannot be mended and read again, so they are left out unless their source says otherwise."""
        above = {origin, *self.ancestors.get(origin, ())}
        entering = {edge.origin for node in self.nodes if node.name in above for edge in node.inputs} | {origin}
        pushed = [source for name, source in self.pushed.items() if name in entering]
        return SKIP if pushed and all(source.on_bad != STOP for source in pushed) else STOP

    def losable_items(self, node: Node) -> float:
        """How many pushed items one worker can lose to all failures together; 0 where no number limits it."""
        total = 0.0
        for entrance in self.entrances(node):
            lanes = entrance.workers if node.keyed else math.ceil(entrance.workers / node.workers)
            # Every failure halves what the next one can take.
            total += 2 * lanes * self.item_limits(entrance).items
        fades = node.window is not None and not node.window.has_panes
        return total if math.isfinite(total) and not fades else 0.0

    def _depth(self, name: str) -> int:
        """The user's operators on the longest way from ``name`` to a sink."""
        followers = [node for node in self.nodes if name in _origins(node)]
        return max(((not node.internal) + self._depth(node.name) for node in followers), default=0)

    def settings(self) -> dict[str, Any]:
        """What a checkpoint says of the pipeline; `afspark.store.pipeline_changes` says what may change of it."""
        return {
            "recorded": self.keeps_records,
            "sources": {
                name: self.planned[name].settings() if name in self.planned else {"kind": "dataframe"}
                for name in self.sources
            },
            "operators": {
                node.name: node.settings() | {"inputs": self._written_origins(node)} for node in self.operators
            },
        }

    def _written_origins(self, node: Node) -> list[str]:
        """Where the user has a node read from: internal nodes stand for what they read from themselves."""
        written: list[str] = []
        for edge in node.inputs:
            inserted = self._internal.get(edge.origin)
            written += self._written_origins(inserted) if inserted else [edge.origin]
        return written

    def input_names(self, node: Node) -> dict[str, str]:
        """What the user calls the inputs of a node that come through internal nodes."""
        inserted = [edge.origin for edge in node.inputs if edge.origin in self._internal]
        written = {origin: self._written_origins(self._internal[origin])[0] for origin in inserted}
        return {origin: self.titles.get(name, name) for origin, name in written.items()}

    def input_order(self, node: Node) -> dict[str, int]:
        """The place of each input that comes through nodes which stand for ``node``, as if these were not there.

        Without them, what is sent to a worker comes in the order of its senders' names, before what it reads itself.
        """
        passing = {one.name: one for one in self.nodes if one.stands_for == node.name}
        if not passing:
            return {}

        def place(entry: tuple[int, Edge]) -> tuple[bool, int, str]:
            number, edge = entry
            origin = passing[edge.origin].inputs[0].origin if edge.origin in passing else edge.origin
            reads_itself = origin in self.planned and not node.keyed
            return (True, number, "") if reads_itself else (False, 0, origin)

        ordered = sorted(enumerate(node.inputs), key=place)
        return {edge.origin: rank for rank, (_, edge) in enumerate(ordered)}

    def fingerprint(self) -> str:
        """A short text for all that its states depend on."""
        found = self.settings()
        bound = {
            name: {field: value for field, value in one.items() if field not in ("name", "tolerance")}
            for name, one in found["operators"].items()
        }
        text = json.dumps({"sources": found["sources"], "operators": bound}, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _origins(node: Node) -> set[str]:
    return {edge.origin for edge in node.inputs}


def _refuse_twins(names: list[str]) -> None:
    twins = [name for name, count in Counter(names).items() if count > 1]
    if twins:
        raise UsageError(
            f"Two operators are called {twins[0]!r}.", remedy="Give each its own name: apply(..., name=...)."
        )


def _in_order(nodes: tuple[Node, ...], known: set[str]) -> Iterator[Node]:
    """The nodes, each after all of its inputs; UsageError for unknown inputs and cycles."""
    names = {node.name for node in nodes}
    for node in nodes:
        for edge in node.inputs:
            if edge.origin not in names | known:
                raise UsageError(f"{node.name!r} reads from {edge.origin!r}, which is not in the pipeline.")
    waiting = list(nodes)
    placed = set(known)
    while waiting:
        ready = [node for node in waiting if all(edge.origin in placed for edge in node.inputs)]
        if not ready:
            raise UsageError(
                f"The operators {', '.join(sorted(node.name for node in waiting))} form a cycle.",
                remedy="Send items upstream with feedback: apply(..., feeds_back=[name]) and context.outbox.feed_back.",
            )
        for node in ready:
            waiting.remove(node)
            placed.add(node.name)
            yield node
