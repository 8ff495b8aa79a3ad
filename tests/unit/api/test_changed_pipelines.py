"""Pipelines that change between two starts: what is told is what happens to the state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import afspark as af
from afspark import testing
from afspark.errors import CheckpointError, UsageError
from afspark.store import identify, open_store
from tests.unit.test_testing import LINES, Counts, counted, lines, words


class Tallies(Counts):
    """The same operator under another name."""


class Lengths(Counts):
    """Another layout: words have lengths, which are no whole numbers."""

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"counts": af.HashTable(key="string", value="float64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), pc.cast(pc.utf8_length(items.column("word")), pa.float64()))


class Forwards(Counts):
    """Counts words and sends them on."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:  # type: ignore[override]
        super().process(items, states)
        return items


Build = Callable[[af.Stream], Any]
POLICIES = [af.MiniBatch(), af.Approximate(theta=50), af.BarrierSnapshot(batches=1), af.UpstreamBackup()]


def counting(operator: af.Operator | None = None, **settings: Any) -> Build:
    given = {"name": "counts", **settings}
    return lambda stream: stream.map(words).apply(operator or Counts(), **given)


def settle(query: testing.LocalQuery) -> None:
    """Has an orderly end: what batches have done is in a record."""
    query._engine.commits.flush(10.0)


@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
@pytest.mark.parametrize("survives", [True, False], ids=["resident", "restored"])
def test_a_renamed_class_with_the_same_id_keeps_its_state(tolerance: af.Tolerance, survives: bool) -> None:
    with testing.run(counting(name="tallies-before", id="counts", tolerance=tolerance), LINES) as query:
        query.batch(lines("to be or", "not to be"))
        settle(query)
        if not survives:
            for host in query.hosts:
                query.lose_host(host)
        query.restart_driver(counting(Tallies(), name=None, id="counts", tolerance=tolerance))
        query.batch(lines("to be"))
        assert counted(query.results("tallies")) == {"to": 3, "be": 3, "or": 1, "not": 1}
        assert query.bounds("tallies") == {"counts": 0.0}
        assert {entry["operator"] for entry in query.tolerance()} == {"tallies"}
        with pytest.raises(UsageError):
            query.results("counts")


def test_without_the_id_it_is_refused_and_told_what_to_write() -> None:
    with testing.run(counting(Counts(), name=None), LINES) as query:
        query.batch(lines("to be"))
        with pytest.raises(CheckpointError) as refused:
            query.restart_driver(counting(Tallies(), name=None))
        assert "'counts' is not in the pipeline any more" in refused.value.message
        assert "'tallies'" in refused.value.remedy and "id='counts'" in refused.value.remedy
        query.batch(lines("to"))
        assert counted(query.results()) == {"to": 2, "be": 1}, "the old one goes on"


def test_what_is_told_of_a_changed_tolerance_is_in_force(caplog: pytest.LogCaptureFixture) -> None:
    with testing.run(counting(tolerance=af.Approximate(theta=50)), LINES) as query:
        query.batch(lines("to be"))
        before = query.tolerance()[0]["theta"]
        with caplog.at_level(logging.INFO, logger="afspark"):
            query.restart_driver(counting(tolerance=af.Approximate(theta=5)))
            query.batch(lines("to be"))
        assert query.tolerance()[0]["theta"] != before
        told = [one.getMessage() for one in caplog.records if "has changed" in one.getMessage()]
        assert told == [
            "The pipeline has changed. kept: 'counts' keeps its state.",
            "The pipeline has changed. changed: 'counts' has theta 5 from the next batch on, instead of 50.",
        ]
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="afspark"):
            query.restart_driver()
            query.batch(lines("to be"))
        assert not [one for one in caplog.records if "has changed" in one.getMessage()], "told once"
        assert counted(query.results()) == {"to": 3, "be": 3}


CHANGES: list[tuple[str, Build]] = [
    ("states.counts.value", counting(Lengths())),
    ("keyed", counting(keyed=True)),
    ("window", counting(window=af.Hopping(10, by="processing"))),
]


@pytest.mark.parametrize(("field", "build"), CHANGES, ids=[field for field, _ in CHANGES])
def test_another_layout_is_refused_and_starts_anew_if_that_is_asked(field: str, build: Build) -> None:
    with testing.run(counting(), LINES) as query:
        query.batch(lines("to be or", "not to be"))
        with pytest.raises(CheckpointError) as refused:
            query.restart_driver(build)
        assert field in refused.value.differs and "discardState" in refused.value.remedy
        query.batch(lines("to be"))
        assert counted(query.results()) == {"to": 3, "be": 3, "or": 1, "not": 1}, "nothing has happened to it"
        query.restart_driver(build, discard=["counts"])
        query.batch(lines("a bee"))
        once = {"a": 1.0, "bee": 3.0} if field.startswith("states") else {"a": 1, "bee": 1}
        assert counted(query.results()) == once
        assert not query.ledger(), "nobody has lost anything"
        # What was given up once is not given up again.
        query.restart_driver(build, discard=["counts"])
        query.batch(lines("a bee"))
        assert counted(query.results()) == {word: 2 * value for word, value in once.items()}
        for host in query.hosts:
            query.lose_host(host)
        query.batch(lines("a"))
        assert counted(query.results())["a"] == 3


@pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(batches=3)], ids=lambda one: one.name)
def test_one_that_starts_anew_and_is_killed_before_its_first_record_starts_anew_again(tolerance: af.Tolerance) -> None:
    with testing.run(counting(tolerance=tolerance), LINES) as query:
        query.batch(lines("to be"))
        settle(query)
        query.restart_driver(counting(Lengths(), tolerance=tolerance), discard=["counts"])
        query.kill_worker("counts", 0, lose_state=True)
        query.batch(lines("a bee", "a bee"))
        for host in query.hosts:
            query.lose_host(host)
        query.batch(lines("a"))
        query.restart_driver()
        for host in query.hosts:
            query.lose_host(host)
        query.batch(lines("a"))
        assert counted(query.results()) == {"a": 4.0, "bee": 6.0}
        checkpoint = open_store(query._folder / "checkpoint")
        identity = identify(checkpoint.below("afspark"))
        assert identity is not None and list(identity.anew) == ["counts"]


def two(first: af.Operator, second: af.Operator | None, **settings: Any) -> Build:
    def build(stream: af.Stream) -> Any:
        counts = stream.map(words).apply(first, name="counts", keyed=False, **settings)
        return [counts] if second is None else [counts.apply(second, name="behind", **settings)]

    return build


@pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(batches=1)], ids=lambda one: one.name)
@pytest.mark.parametrize("begun", [False, True], ids=["between", "within"])
def test_operators_come_and_go(tolerance: af.Tolerance, begun: bool) -> None:
    alone, both = (two(Forwards(), one, tolerance=tolerance) for one in (None, Counts()))
    with testing.run(alone, LINES) as query:
        query.batch(lines("to be"))
        settle(query)
        if begun:
            # The first one applies the batch, and the driver is gone before it is committed.
            _apply_only(query, lines("or not"))
        query.restart_driver(both)
        query.batch(lines("to be"))
        after = {"or": 1, "not": 1} if begun else {}
        assert counted(query.results("counts")) == {"to": 2, "be": 2, **after}
        assert counted(query.results("behind")) == {"to": 1, "be": 1, **after}, "all that came since it is there"
        settle(query)
        with pytest.raises(CheckpointError) as refused:
            query.restart_driver(alone)
        assert "'behind'" in refused.value.message
        query.restart_driver(alone, discard=["behind"])
        query.batch(lines("to"))
        assert counted(query.results("counts")) == {"to": 3, "be": 2, **after}
        settle(query)
        query.restart_driver(both)
        query.batch(lines("to"))
        assert counted(query.results("behind")) == {"to": 1}, "it has begun with an empty state once more"
        assert not query.ledger()


@pytest.mark.parametrize("planned", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "alone"])
def test_what_is_given_up_stays_so_until_its_first_batch_whatever_starts_follow(planned: bool, flushed: bool) -> None:
    """With other workers, after a stop in which nothing came, and on hosts without state."""
    with testing.run(two(Forwards(), Counts()), LINES) as query:
        query.batch(lines("to be"))
        query.restart_driver(planned=planned)
        query.restart_driver(two(Forwards(), Lengths()), discard=["behind"])
        assert counted(query.results("behind")) == {}
        query.restart_driver(workers={"counts": 3}, planned=flushed)
        assert counted(query.results("behind")) == {}
        query.restart_driver(planned=flushed)
        if flushed:
            for host in query.hosts:
                query.lose_host(host)
        assert (counted(query.results("counts")), counted(query.results("behind"))) == ({"to": 1, "be": 1}, {})
        query.batch(lines("a bee"))
        assert counted(query.results("behind")) == {"a": 1.0, "bee": 3.0}
        assert not any(entry["counted"] for entry in query.ledger())
        assert query.bounds("behind") == {"counts": 0.0}


def _apply_only(query: testing.LocalQuery, items: Any) -> None:
    engine = query._engine

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the driver is gone")

    commit, engine._commit = engine._commit, fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        query.batch(items)
    engine._commit = commit  # type: ignore[method-assign]


def test_batches_that_have_to_be_replayed_are_not_sent_through_another_graph() -> None:
    tolerance = af.BarrierSnapshot(batches=3)
    alone, both = (two(Forwards(), one, tolerance=tolerance) for one in (None, Counts()))
    with testing.run(alone, LINES) as query:
        for _ in range(5):
            query.batch(lines("to be"))
        query.restart_driver(both)
        with pytest.raises(CheckpointError) as refused:
            query.batch(lines("to be"))
        assert "have to be replayed" in refused.value.message and "orderly" in refused.value.remedy
        query.restart_driver(alone)
        query.batch(None)
        assert counted(query.results("counts")) == {"to": 6, "be": 6}


class Gate(af.Operator):
    """Lets words pass until it is told to stop, and says where things come from and go to."""

    def states(self) -> Mapping[str, af.StateSpec]:
        return {"told": af.HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        self.context.outbox.send(items, to="sink")

    def on_feedback(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["told"].add([f"from {self.context.input}"], items.num_rows)


class Sink(Counts):
    """Counts words by where they come from, and tells the gate."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add([self.context.input], items.num_rows)
        self.context.outbox.feed_back(items, to="gate")

    def on_punctuation(self, punctuation: Any, states: Mapping[str, Any]) -> None:
        states["counts"].add([f"end of {punctuation.operator}"], 1)


def test_operators_hear_and_say_names_whatever_their_ids_are() -> None:
    def build(stream: af.Stream) -> Any:
        gate = stream.map(words).apply(Gate(), name="gate", id="first", workers=1)
        return gate, gate.apply(Sink(), name="sink", id="second", workers=1, keyed=False, feeds_back=["gate"])

    with testing.run(lambda stream: list(build(stream)), LINES) as query:
        query.batch(lines("to be"))
        query.batch(lines("or"))
        assert counted(query.results("gate")) == {"from sink": 2}
        assert counted(query.results("sink")) == {"gate": 3}
        query.kill_worker("sink", 0, lose_state=True)
        progress = query.batch(lines("not"))
        assert {one["operator"] for one in progress["workers"]} == {"gate", "sink"}
        assert {entry["operator"] for entry in query.ledger()} == {"sink"}
        query.end()
        assert counted(query.results("sink"))["end of gate"] == 1


def test_ids_are_not_shared() -> None:
    def build(stream: af.Stream) -> Any:
        first = stream.map(words).apply(Forwards(), name="one", id="two", workers=1)
        return first.apply(Counts(), name="two", workers=1)

    with pytest.raises(UsageError) as refused, testing.run(build, LINES):
        pass
    assert "Two operators have the id 'two'." in str(refused.value) and "id=" in refused.value.remedy


@pytest.mark.parametrize("given", ["", 7])
def test_what_is_no_id(given: Any) -> None:
    with pytest.raises(UsageError), testing.run(counting(id=given), LINES):
        pass
