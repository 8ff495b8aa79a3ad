"""Relays that the runtime inserts: no operators of the user's, without a part of the budget."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.coordinator.receivers.receivers import receiver_plans
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.graph.graph import Graph
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.rewrites import rewritten
from afspark.model.operator import Operator
from afspark.model.states import HashTable, HeapColumns, StateSpec
from afspark.policies import Approximate, MiniBatch, NoBackup, Nothing, Tolerance, UpstreamBackup
from afspark.protocol.fault_plan import FaultPlan
from afspark.protocol.lifecycle import Hint
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet
from afspark.protocol.requests import TaskRequest
from afspark.sources import Pushed
from afspark.store import open_store
from afspark.task.batch_processor import BatchProcessor
from afspark.task.feed import Feed
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.pane_states import PaneStates

SCHEMA = pa.schema([("key", pa.int64())])


class Count(Operator):
    key = ("key",)
    alpha = 1.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="int64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("key"), 1)


def node(name: str, *origins: str, **settings: Any) -> Node:
    chosen = {"keyed": True, "workers": 2, "tolerance": Approximate(80, items=800, unacked=80), **settings}
    return Node(name=name, operator=Count(), inputs=tuple(Edge(origin) for origin in origins or (SOURCE,)), **chosen)


def relayed(*nodes: Node, sources: tuple[str, ...] = (SOURCE,)) -> Pipeline:
    pushed = {name: Pushed.of(SCHEMA, lanes=2) for name in sources}
    return rewritten(Graph(sources=pushed, nodes=nodes))


def allowed(pipeline: Pipeline, relay: str = "relay") -> tuple[float, float]:
    """l of a lane, and γ of a producer over all lanes."""
    reader = pipeline.node(relay)
    (plan,) = receiver_plans(Pushed.of(SCHEMA, lanes=reader.workers), reader, pipeline, "secret")
    return plan.items, plan.unacked


def test_a_relay_takes_nothing_of_the_budget() -> None:
    pipeline = relayed(node("count"))
    assert [one.name for one in pipeline.nodes] == ["relay", "count"]
    assert [one.name for one in pipeline.operators] == ["count"]
    direct = relayed(node("count", keyed=False))
    assert [one.name for one in direct.nodes] == ["count"]
    assert pipeline.place(pipeline.node("count")).weight == direct.place(direct.node("count")).weight == 1.0
    assert allowed(pipeline) == allowed(direct, "count") == (800 / (2 * 2), 80 / 2)
    assert ErrorBudget.of(pipeline, pipeline.node("count")).theta(()) == {"counts": 40.0}
    assert ErrorBudget.of(pipeline, pipeline.node("relay")).theta(()) == {}


def test_given_weights_leave_nothing_for_a_relay_and_need_not() -> None:
    pipeline = relayed(node("first", weight=0.75), node("second", "first", weight=0.25))
    assert pipeline.place(pipeline.node("first")).weight == 0.75
    assert allowed(pipeline)[0] == 0.75 * 800 / 4


def test_the_strictest_reader_decides() -> None:
    pipeline = relayed(
        node("loose", workers=4), node("strict", workers=1, tolerance=Approximate(80, items=8, unacked=4))
    )
    # Four lanes, each of which may lose l of the items that the stricter one would have read.
    assert pipeline.node("relay").workers == 4
    assert allowed(pipeline) == (0.5 * 8 / (2 * 4), 0.5 * 4 / 2)


@pytest.mark.parametrize(
    ("tolerances", "expected"),
    [
        ([Nothing(), MiniBatch()], (0.0, None, False, False)),
        ([Nothing(), Approximate(1, items_seconds=4.0)], (math.inf, 2.0, False, False)),
        ([Approximate(1, items_seconds=4.0), Approximate(1, items=80)], (10.0, 2.0, False, False)),
        ([UpstreamBackup(), Approximate(1, items=80)], (0.0, None, True, False)),
        ([UpstreamBackup(), MiniBatch(log_items=True)], (0.0, None, False, True)),
    ],
    ids=str,
)
def test_tolerances_of_different_kinds(
    tolerances: list[Tolerance], expected: tuple[float, float | None, bool, bool]
) -> None:
    pipeline = relayed(*(node(f"n{number}", tolerance=one) for number, one in enumerate(tolerances)))
    found = pipeline.item_limits(pipeline.node("relay"))
    assert (found.items, found.seconds, found.keeps_upstream, found.logs_first) == expected


def test_two_sources_share_the_items_that_may_be_lost() -> None:
    """And so do two ways from one source: an item that is lost is lost on both."""
    both = relayed(node("count", SOURCE, "other"), sources=(SOURCE, "other"))
    assert [allowed(both, relay) for relay in ("relay", "relay-other")] == [(800 / (2 * 4), 80 / 4)] * 2
    twice = relayed(node("count", SOURCE, SOURCE))
    assert allowed(twice)[0] == 800 / (2 * 4)
    assert [one.name for one in twice.entrances(twice.node("count"))] == ["relay", "relay"]


def test_what_a_worker_can_lose() -> None:
    keyed, shares = relayed(node("count")), relayed(node("count", keyed=False), node("other", keyed=False))
    # By key, whatever any lane loses may have been for one worker; else a lane belongs to a worker.
    assert keyed.losable_items(keyed.node("count")) == 2 * 2 * 200
    assert shares.losable_items(shares.node("count")) == 2 * 100
    nothing = relayed(node("count", tolerance=Nothing()))
    assert nothing.losable_items(nothing.node("count")) == 0.0


def test_a_checkpoint_does_not_depend_on_how_items_are_brought() -> None:
    settings = relayed(node("count")).settings()["operators"]
    assert list(settings) == ["count"] and settings["count"]["inputs"] == [SOURCE]


def test_users_may_call_an_operator_as_they_like() -> None:
    pipeline = relayed(node("relay"))
    assert [one.name for one in pipeline.operators] == ["relay"]
    assert [one.name for one in pipeline.readers(pipeline.nodes[0])] == ["relay"]


class Tagged(Operator):
    """Notes what its inputs are called."""

    def __init__(self) -> None:
        self.inputs: list[str] = []

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.inputs.append(self.context.input)


def test_an_operator_is_told_the_name_of_its_source_and_not_of_a_relay() -> None:
    pipeline = relayed(node("count", SOURCE, "other"), sources=(SOURCE, "other"))
    names = pipeline.input_names(pipeline.node("count"))
    assert names == {"relay": SOURCE, "relay-other": "other"}
    config = OperatorConfig(
        query_id="q",
        fingerprint="f",
        operator_name="count",
        workers=1,
        checkpoint="",
        store=open_store("/nowhere"),
        epoch="e",
        segments=None,
        emit=False,
        faults=FaultPlan(),
        input_names=names,
    )
    request = TaskRequest(worker=0, batch=1, incarnation=0, hint=Hint.RESUME, fence=0, home="a", backup=NoBackup())
    items = pa.record_batch({"key": [1]}, schema=SCHEMA)
    feed = Feed([(name, Ingest(GivenPackets([Packet(items)]), ())) for name in names])
    operator = Tagged()
    BatchProcessor(config, request, operator, PaneStates.under(None, HeapColumns(), {})).run(feed)
    assert operator.inputs == [SOURCE, "other"]
