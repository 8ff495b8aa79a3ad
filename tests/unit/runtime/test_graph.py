"""What users compose becomes a checked graph; bad use is refused when it is built, with a remedy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from afspark.api.assembly import assemble
from afspark.api.stream import Inflow, StatefulStream, Stream
from afspark.api.writer import StreamWriter
from afspark.errors import UsageError
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, Numeric, StateSpec
from afspark.model.windows import Decaying, Hopping, Sliding
from afspark.policies import Approximate, MiniBatch
from afspark.sources import Packets, ZipfWords


class Counter(Operator):
    key = ("src",)

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("src"), 1)


def packets() -> Stream:
    return Stream(None, (Inflow(Packets(100)),))  # type: ignore[arg-type]


def built(*sinks: tuple[StatefulStream, str | None]) -> Pipeline:
    return assemble(sinks, batch_bytes=1000)


def node(name: str, *origins: str, **settings: Any) -> Node:
    return Node(name=name, operator=Counter(), inputs=tuple(Edge(origin) for origin in origins), **settings)


def counted(name: str, *origins: str, **settings: Any) -> Node:
    return node(name, *origins, window=Hopping(4, by="count"), **settings)


def test_a_graph_keeps_shared_parts_once() -> None:
    stream = packets()
    first = stream.apply(Counter(), name="first")
    left, right = first.apply(Counter(), name="left"), first.apply(Counter(), name="right")
    both = left.union(right, stream).apply(Counter(), name="both", workers=1)
    pipeline = built((both, "append"), (left, None))
    assert [one.name for one in pipeline.nodes] == ["first", "left", "right", "both"]
    assert list(pipeline.sources) == [SOURCE]
    assert [edge.origin for edge in pipeline.node("both").inputs] == ["left", "right", SOURCE]
    assert pipeline.upstream_of("both") == {"first", "left", "right"}
    assert pipeline.downstream_of("first") == ["left", "right", "both"]
    assert pipeline.node("both").appends and not pipeline.node("left").emits


def test_several_sources_are_told_apart() -> None:
    words = Stream(None, (Inflow(ZipfWords(100)),))  # type: ignore[arg-type]
    joined = packets().union(words).apply(Counter(), name="joined")
    assert list(built((joined, None)).sources) == [SOURCE, "source2"]


def test_keys_decide_the_way_between_operators_and_in_update_mode() -> None:
    first = packets().apply(Counter(), name="first")
    second = first.apply(Counter(), name="second")
    assert [one.keyed for one in built((second, None)).nodes] == [False, True]
    assert [one.keyed for one in built((first, "update")).nodes] == [True]


def test_the_budget_is_divided_by_weight_and_by_what_comes_after() -> None:
    class Doubling(Counter):
        fan_out = 2.0

    first = packets().apply(Doubling(), name="first", weight=0.5)
    third = first.apply(Counter(), name="second").apply(Counter(), name="third")
    pipeline = built((third, None))
    places = [pipeline.place(one) for one in pipeline.nodes]
    assert [place.weight for place in places] == [0.5, 0.25, 0.25]
    assert [place.downstream for place in places] == [2, 1, 0]
    assert [place.amplification for place in places] == [4.0, 1.0, 1.0]


def _two_sinks() -> None:
    counter = packets().apply(Counter(), name="a")
    StreamWriter(counter).also(StreamWriter(counter)).check()


REFUSED = {
    "zero workers": (lambda: node("a", SOURCE, workers=0), "at least 1"),
    "workers that are no number": (lambda: node("a", SOURCE, workers="2"), "whole number"),
    "a policy that was not made": (lambda: node("a", SOURCE, tolerance=MiniBatch), "MiniBatch()"),
    "the name of a policy": (lambda: node("a", SOURCE, tolerance="minibatch"), "MiniBatch()"),
    "a cycle": (lambda: Pipeline(sources={}, nodes=(node("a", "b"), node("b", "a"))), "feed_back"),
    "two of one name": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", SOURCE), node("a", SOURCE))),
        "own name",
    ),
    "an unknown input": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", "nobody"),)),
        "not in the pipeline",
    ),
    "feedback downstream": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", SOURCE, feeds_back=("b",)), node("b", "a"))),
        "not upstream",
    ),
    "no operator": (lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=()), "at least one operator"),
    "weights above one": (
        lambda: built((packets().apply(Counter(), name="a", weight=0.7).apply(Counter(), name="b", weight=0.7), None)),
        "sum to at most 1",
    ),
    "a window without time column": (lambda: Hopping(10), "column"),
    "a window over a column that is not there": (
        lambda: packets().apply(Counter(), window=Hopping(10, column="when")),
        "Name the column",
    ),
    "counts that cannot be shared": (
        lambda: node("a", SOURCE, workers=2, window=Sliding(9, 3, by="count")),
        "multiple of 2",
    ),
    "windows by count over shares by key": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(counted("a", SOURCE, workers=2, keyed=True),)),
        "one worker",
    ),
    "windows by count over items of another operator": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", SOURCE), counted("b", "a", workers=2))),
        "one worker",
    ),
    "windows by count over a source and an operator": (
        lambda: Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", SOURCE), counted("b", SOURCE, "a", workers=2))),
        "one worker",
    ),
    "a decaying state of integers": (
        lambda: node("a", SOURCE, window=Decaying(0.5, 1, by="processing")),
        "float64",
    ),
    "rows of windows in update mode": (
        lambda: built((packets().apply(Counter(), window=Hopping(10, column="src")), "update")),
        "append",
    ),
    "an unknown divergence": (lambda: HashTable(divergence="cosine"), "Use one of"),
    "a state's name": (lambda: Node(name="a", operator=Named("a@b")), "letters"),
    "two sinks of one name": (_two_sinks, "foreachBatch"),
    "an operator that does not pickle": (lambda: Node(name="a", operator=Unpicklable()), "begin()"),
    "an operator that approximation would break": (
        lambda: node_of(Resetting(), tolerance=Approximate(10)),
        "MiniBatch",
    ),
    "items without alpha": (lambda: node_of(Counter(), tolerance=Approximate(10, items=5)), "alpha"),
    "a key that is not there": (lambda: node_of(Keyless(), keyed=True), "key"),
}


class Named(Operator):
    def __init__(self, state: str) -> None:
        self.state = state

    def states(self) -> Mapping[str, StateSpec]:
        return {self.state: Numeric()}


class Keyless(Operator):
    pass


class Resetting(Operator):
    approximable = "it starts again at a level"


class Unpicklable(Operator):
    def __init__(self) -> None:
        self.lock = threading.Lock()


def node_of(operator: Operator, **settings: Any) -> Node:
    return Node(name="a", operator=operator, **settings)


def test_numbers_of_numpy_are_as_good_as_others() -> None:
    numbers = [(np.int64(2), np.float32(0.5)), (2, 0.5)]
    made, plain = [
        Pipeline(sources={SOURCE: Packets(1)}, nodes=(node("a", SOURCE, workers=workers, weight=weight),))
        for workers, weight in numbers
    ]
    assert made.fingerprint() == plain.fingerprint() and made.place(made.nodes[0]) == plain.place(plain.nodes[0])


@pytest.mark.parametrize("case", REFUSED)
def test_bad_use_is_refused_with_a_remedy(case: str) -> None:
    build, hint = REFUSED[case]
    with pytest.raises(UsageError) as caught:
        build()
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_exact_policies_take_operators_that_approximation_would_break() -> None:
    assert node_of(Resetting(), tolerance=MiniBatch()).name == "a"
    assert node_of(Resetting(), tolerance=Approximate(0)).name == "a"


def test_windows_by_count_take_even_shares_and_single_workers() -> None:
    sources = {SOURCE: Packets(1)}
    assert Pipeline(sources=sources, nodes=(counted("a", SOURCE, workers=2),)).node("a").workers == 2
    alone = (node("a", SOURCE), counted("b", "a", workers=1, keyed=True))
    assert Pipeline(sources=sources, nodes=alone).node("b").keyed
