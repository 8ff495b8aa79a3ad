"""Items partitioned by key: which shares of the state are disjoint, and what follows for thresholds and bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.errors import UsageError
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, HeapColumns, StateSpec
from afspark.policies import Approximate
from afspark.protocol.parcels import owners
from afspark.sources import Source
from tests.unit.runtime.conftest import MakeRig

WORKERS = 4


def words(blocks: pa.RecordBatch) -> pa.RecordBatch:
    found = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(blocks.column("value").cast(pa.large_string())))
    return pa.record_batch({"word": pc.list_flatten(found).cast(pa.string())})


class ByWord(Operator):
    """Counts words where they are owned."""

    key: ClassVar[tuple[str, ...]] = ("word",)
    alpha = 1.0
    declared = True

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(operator_key=self.declared)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        states["counts"].add(self.keys(items), 1)
        return None

    def keys(self, items: pa.RecordBatch) -> pa.Array:
        return items.column("word")


class ByLetter(ByWord):
    """Words go to workers by word; the table is by their first letter, which all workers may have."""

    declared = False

    def keys(self, items: pa.RecordBatch) -> pa.Array:
        return pc.utf8_slice_codeunits(items.column("word"), 0, 1)


class DeclaredByLetter(ByLetter):
    declared = True


class FedBack(ByWord):
    """Updated by feedback, which goes to every worker if it does not have the key's column."""

    column = "word"

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        states["counts"].add(items.column(self.column), 1)
        return None

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch | None:
        super().process(items, states)
        return items.slice(0, 1)


class FedBackToAll(FedBack):
    column = "other"


class Echo(Operator):
    """Sends back what it gets."""

    def __init__(self, column: str) -> None:
        self.column = column

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.context.outbox.feed_back(pa.record_batch({self.column: items.column("word")}), to="counts")


def single(operator: Operator, theta: float, source: Source) -> Pipeline:
    node = Node(
        name="counts",
        operator=operator,
        inputs=(Edge(SOURCE, (words,)),),
        workers=WORKERS,
        keyed=True,
        tolerance=Approximate(theta),
    )
    return Pipeline(sources={SOURCE: source}, nodes=(node,))


@pytest.mark.parametrize(("operator", "share"), [(ByWord(), 1), (ByLetter(), WORKERS)], ids=["own key", "other key"])
def test_a_table_stays_inside_its_bound_whatever_its_key(make_rig: MakeRig, operator: Operator, share: int) -> None:
    theta = 400.0
    rig, words_in = make_rig(
        batches=15, slots={"a": 2, "b": 2}, pipeline=lambda source: single(operator, theta, source)
    )
    assert ErrorBudget.of(rig.start().pipeline, rig.driver.pipeline.nodes[0]).theta(()) == {"counts": theta / 2 / share}
    for batch in range(14):
        rig.go(1)
        if batch % 2:
            rig.lose()
    rig.go()
    truth: Counter[str] = Counter()
    for word, count in words_in.items():
        truth[word if share == 1 else word[0]] += count
    got = rig.counts()
    error = max(truth[key] - got[key] for key in truth)
    assert 0 < error <= rig.bound() <= theta
    assert {member.failures for member in rig.members} == {7}


def test_a_wrong_declaration_stops_the_query_before_the_batch_is_applied(make_rig: MakeRig) -> None:
    rig, _ = make_rig(slots={"a": 2, "b": 2}, pipeline=lambda source: single(DeclaredByLetter(), 400.0, source))
    with pytest.raises(UsageError) as raised:
        rig.go(1)
    fields = raised.value.fields
    assert fields["state"] == "counts" and fields["owner"] != fields["worker"]
    assert rig.committed == -1


@pytest.mark.parametrize(("operator", "sound"), [(FedBack(), True), (FedBackToAll(), False)], ids=["by key", "to all"])
def test_feedback_is_held_to_the_declaration_as_well(make_rig: MakeRig, operator: FedBack, sound: bool) -> None:
    def pipeline(source: Source) -> Pipeline:
        (counts,) = single(operator, 400.0, source).nodes
        echo = Node(
            name="echo", operator=Echo(operator.column), inputs=(Edge("counts"),), workers=1, feeds_back=("counts",)
        )
        return Pipeline(sources={SOURCE: source}, nodes=(counts, echo))

    rig, _ = make_rig(slots={"a": 3, "b": 3}, pipeline=pipeline)
    rig.go(1)
    if sound:
        rig.go(2)
        return
    with pytest.raises(UsageError) as raised:
        rig.go(1)
    assert raised.value.fields["state"] == "counts"


texts = st.lists(st.binary(max_size=20), min_size=1, max_size=40)
numbers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)


@given(keys=texts | numbers, workers=st.integers(2, 9))
def test_a_key_is_owned_by_the_worker_that_its_items_go_to(keys: list[Any], workers: int) -> None:
    """What the exchange decides for items is what the table checks for its keys."""
    kind = "string" if isinstance(keys[0], bytes) else "int64"
    spec = HashTable(key=kind, operator_key=True)
    column = pa.array(keys, pa.binary() if kind == "string" else pa.int64())
    owner = owners(pa.record_batch({"key": column}), ("key",), workers)
    for worker in range(workers):
        table = spec.open(HeapColumns(), "table")
        table.begin()
        mine = column.filter(pa.array(owner == worker))
        table.add(mine, 1)
        table.refuse_foreign_keys(worker, workers)
        for other in np.flatnonzero(owner != worker)[:1]:
            table.add(column.slice(other, 1), 1)
            with pytest.raises(UsageError):
                table.refuse_foreign_keys(worker, workers)
        table.begin()
        table.refuse_foreign_keys(worker, workers)  # what was there before has been looked at before


def test_specifications_tell_the_declaration() -> None:
    spec = HashTable(key="int64", operator_key=True)
    assert spec.disjoint and StateSpec.from_json(spec.to_json()) == spec
    assert "operator_key" not in HashTable().to_json() and not HashTable().disjoint
    with pytest.raises(UsageError):
        HashTable(operator_key="word")  # type: ignore[arg-type]
