"""Rewrites of a graph: stateless steps are fused, and a node that a rewrite adds is none of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import afspark
from afspark.api.assembly import assemble, composed
from afspark.api.query import Query
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.errors import UsageError
from afspark.graph.fusing import MapStep
from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import REWRITES, Rewrite, rewritten
from afspark.model.operator import Operator
from afspark.policies import Approximate
from afspark.sources import Packets, Pushed, Source
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.test_sparkless import Gate, Tally, words

TOLERANCE = Approximate(80, items=800, unacked=80)
SCHEMA = pa.schema([("word", pa.string())])


class PassOn(Operator):
    """Stands where an injector would, and injects nothing."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        return items


def in_front_of(target: str) -> Rewrite:
    """A rewrite that puts a node in front of an operator, so that it sees all of its items."""

    def rewrite(graph: Graph) -> Graph:
        nodes: list[Node] = []
        for node in graph.nodes:
            if node.name == target:
                nodes.append(Node(name="injector", operator=PassOn(), inputs=node.inputs, internal=True))
                node = replace(node, inputs=(Edge("injector"),))  # noqa: PLW2901 - the same node, read elsewhere
            nodes.append(node)
        return replace(graph, nodes=tuple(nodes))

    return rewrite


def gate_and_tally(source: Source) -> Graph:
    return Graph(
        sources={SOURCE: source},
        nodes=(
            Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),), tolerance=Approximate(80)),
            Node(name="tally", operator=Tally(), inputs=(Edge("gate"),), keyed=True, tolerance=Approximate(80)),
        ),
    )


def with_injector(graph: Graph, target: str) -> Pipeline:
    return rewritten(graph, (*REWRITES, in_front_of(target)))


@pytest.mark.parametrize("target", ["gate", "tally"])
def test_an_added_node_changes_nothing_of_what_is_decided_for_operators(target: str) -> None:
    graph = gate_and_tally(Packets(1))
    plain, injected = rewritten(graph), with_injector(graph, target)
    assert "injector" in {node.name for node in injected.nodes}
    assert injected.operators == [injected.node(node.name) for node in plain.nodes]
    for node in plain.nodes:
        assert injected.place(injected.node(node.name)) == plain.place(node)
        assert ErrorBudget.of(injected, injected.node(node.name)) == ErrorBudget.of(plain, node)
    assert ErrorBudget.of(injected, injected.node("injector")).theta(()) == {}
    assert injected.settings() == plain.settings()
    assert injected.fingerprint() == plain.fingerprint()


def test_an_added_node_behind_a_relay_leaves_pushed_items_with_their_readers() -> None:
    readers = tuple(
        Node(name=name, operator=Counting(), inputs=(Edge(SOURCE),), keyed=True, tolerance=TOLERANCE)
        for name in ("count", "other")
    )
    graph = Graph(sources={SOURCE: Pushed.of(SCHEMA, lanes=2)}, nodes=readers)
    plain, injected = rewritten(graph), with_injector(graph, "count")
    relay, count = injected.node("relay"), injected.node("count")
    assert [node.name for node in injected.nodes] == ["relay", "injector", "other", "count"]
    assert {node.name for node in injected.readers(relay)} == {"count", "other"}
    assert injected.entrances(count) == [relay] == injected.entrances(injected.node("other"))
    assert injected.item_limits(relay) == plain.item_limits(plain.node("relay"))
    assert injected.losable_items(count) == plain.losable_items(plain.node("count")) > 0
    assert injected.fingerprint() == plain.fingerprint()


class Counting(Tally):
    alpha = 1.0


@pytest.mark.parametrize("target", ["gate", "tally"])
def test_users_do_not_see_an_added_node(make_rig: MakeRig, target: str) -> None:
    rig, truth = make_rig(batches=3, pipeline=lambda source: with_injector(gate_and_tally(source), target))
    engine = rig.start()
    query = Query(None, engine)  # type: ignore[arg-type]
    rig.go(2)
    rig.lose(operator="injector")
    rig.go()
    assert rig.counts("tally") == truth, "an added node has no state, so that nothing is lost with it"
    assert [run.name for run in engine.runs if run.node.internal] == ["injector"]
    assert query.bounds() == {"counts": 0.0}
    assert {entry["operator"] for entry in query.tolerance()} == {"gate", "tally"}
    progress = list(engine.end(lambda batch: None))[-1].to_json()
    assert {worker["operator"] for worker in progress["workers"]} == {"gate", "tally"}
    found = afspark.inspect(rig.checkpoint, segments=rig.segments)
    assert [operator.name for operator in found.operators] == ["gate", "tally"]
    with pytest.raises(UsageError):
        query.bounds("injector")


def first(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def second(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def third(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def counted() -> StatefulStream:
    packets = Stream(None, (Inflow(Packets(100)),))  # type: ignore[arg-type]
    mapped = packets.map(first)
    left = mapped.map(second).apply(Gate(), name="left")
    return left.map(third).union(mapped).apply(Gate(), name="both", workers=1)


def test_stateless_steps_are_nodes_until_they_are_fused() -> None:
    graph = composed([(counted(), None)])
    steps = [node for node in graph.nodes if isinstance(node.operator, MapStep)]
    assert len(steps) == 4 and all(node.internal for node in steps)
    pipeline = assemble([(counted(), None)], batch_bytes=1000)
    assert [node.name for node in pipeline.nodes] == ["left", "both"]
    assert pipeline.node("left").inputs == (Edge(SOURCE, (first, second)),)
    assert pipeline.node("both").inputs == (Edge("left", (third,)), Edge(SOURCE, (first,)))


def test_a_step_gives_the_same_whether_it_is_fused_or_not(make_rig: MakeRig) -> None:
    def unfused(source: Source) -> Pipeline:
        step = Node(name="step", operator=MapStep(words), inputs=(Edge(SOURCE),), internal=True)
        tally = Node(name="tally", operator=Tally(), inputs=(Edge("step"),), keyed=True)
        graph = Graph(sources={SOURCE: source}, nodes=(step, tally))
        assert rewritten(graph).fingerprint() == rewritten(graph, ()).fingerprint()
        return rewritten(graph, ())

    rig, truth = make_rig(batches=2, pipeline=unfused)
    rig.go()
    assert rig.counts("tally") == truth
