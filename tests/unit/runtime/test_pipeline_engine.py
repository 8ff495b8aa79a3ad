"""Several operators in one query: what a loss between two stages, of feedback, or at the end of the stream does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.operator import Operator
from afspark.model.states import HashTable, Numeric, StateSpec
from afspark.model.windows import Hopping, Punctuation
from afspark.policies import Approximate, MiniBatch, Tolerance
from afspark.sources import Source
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_sparkless import Gate, Tally, number, words

WINDOW = Hopping(10, by="processing")


class Echo(Operator):
    """Counts words and sends three items back in every batch that brings any."""

    key = ("word",)
    alpha = 1.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="int64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), 1)
        self.context.outbox.feed_back(pa.record_batch({"n": [1, 2, 3]}), to="gate")


class LearningGate(Gate):
    """Remembers how many waiting items a failure took."""

    alpha = 1.0

    def states(self) -> Mapping[str, StateSpec]:
        return {"passed": Numeric(), "returned": Numeric()}


def two(tolerance: Tolerance) -> Callable[[Source], Pipeline]:
    """A gate, and an operator with one worker that feeds back to it."""

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="gate", operator=LearningGate(), inputs=(Edge(SOURCE, (words,)),)),
                Node(
                    name="echo",
                    operator=Echo(),
                    inputs=(Edge("gate"),),
                    workers=1,
                    tolerance=tolerance,
                    feeds_back=("gate",),
                ),
            ),
        )

    return pipeline


def lose_once(rig: Rig, operator: str, *, when: Callable[[str, int], bool]) -> list[str]:
    """All state of ``operator`` goes the first time a task is about to start for which ``when`` holds."""
    happened: list[str] = []

    def before(kind: str, partition: int, attempt: int) -> None:
        if not happened and rig.stage and when(rig.stage, rig.committed):
            happened.append(kind)
            rig.lose(operator=operator)

    rig.hosts.before = before
    return happened


def test_a_loss_between_two_stages_is_made_good_for_both(make_rig: MakeRig) -> None:
    """The gate has applied the batch and is gone before the next operator has read what it sent."""
    rig, truth = make_rig(batches=4, pipeline=two(MiniBatch()))
    rig.go(2)
    happened = lose_once(rig, "gate", when=lambda stage, _: stage == "echo")
    rig.go()
    assert happened
    assert rig.counts("echo") == truth
    assert number(rig, "gate", "passed") == truth.total()
    assert {entry.loss.operator for entry in rig.ledger} == {"gate"}


def test_exact_feedback_survives_the_loss_of_its_sender(make_rig: MakeRig) -> None:
    rig, truth = make_rig(batches=4, pipeline=two(MiniBatch()))
    rig.go(2)
    rig.lose(operator="echo")
    rig.go()
    # Every batch sends one parcel of three per partition it read; each reaches both gates in the batch after.
    sent = number(rig, "gate", "returned")
    assert rig.counts("echo") == truth
    assert sent == 2 * 3 * packets(4 - 1)
    assert all(entry.loss.items == 0 for entry in rig.ledger)


def packets(batches: int) -> int:
    """Arrow batches that reach the second operator: two files from each of two gates."""
    return 4 * batches


@pytest.mark.parametrize(("limit", "lost"), [(1000.0, 12), (10.0, 0)], ids=["few may wait", "too many wait"])
def test_approximate_feedback_loses_what_may_wait_and_no_more(make_rig: MakeRig, limit: float, lost: int) -> None:
    """l = L / (2 operators · 2 · 1 worker); twelve items wait after every batch."""
    rig, truth = make_rig(batches=4, pipeline=two(Approximate(theta=0.0, items=limit)))
    rig.go(2)
    rig.lose(operator="echo")
    rig.go()
    assert rig.counts("echo") == truth, "theta is 0, so nothing of the state is lost"
    (entry,) = rig.ledger
    assert entry.loss.items == lost <= limit
    assert entry.loss.thresholds is not None and entry.loss.thresholds.items == limit / 4
    assert "by weight" in entry.loss.thresholds.why
    assert number(rig, "gate", "returned") == 2 * (3 * packets(4 - 1) - lost)


def three(source: Source) -> Pipeline:
    return Pipeline(
        sources={SOURCE: source},
        nodes=(
            Node(name="gate", operator=Gate(), inputs=(Edge(SOURCE, (words,)),)),
            Node(
                name="tally",
                operator=Tally(to="gate"),
                inputs=(Edge("gate"),),
                window=WINDOW,
                keyed=True,
                feeds_back=("gate",),
            ),
            Node(name="ends", operator=Ends(), inputs=(Edge("tally"),), workers=1),
        ),
    )


class Ends(Operator):
    """Counts punctuations in the order they come."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"windows": Numeric(), "last": Numeric()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        raise AssertionError("nobody sends items")

    def on_punctuation(self, punctuation: Punctuation, states: Mapping[str, Any]) -> None:
        assert states["last"].value == 0, "the stream had ended"
        states["last" if punctuation.last else "windows"].add(1)


@pytest.mark.parametrize("death", [4, 5], ids=["while windows close", "while the end is told"])
def test_an_end_that_was_interrupted_is_finished_once(make_rig: MakeRig, death: int) -> None:
    rig, truth = make_rig(batches=4, pipeline=three)
    closed: dict[int, Counter[str]] = {}

    def take(batch: int) -> None:
        for share in rig.windows(batch, "tally"):
            for (window, _, _, _), cells in share.items():
                closed.setdefault(window, Counter()).update(cells)

    def end_and_die() -> None:
        rig.start()
        rig.end(deliver=lambda batch: die() if batch == death else None)

    for rig.now in (3.0, 8.0, 12.0, 25.0):
        rig.go(1, deliver=take)
    rig.drive_and_die(end_and_die)
    rig.start()
    rig.end(deliver=take)
    assert number(rig, "ends", "windows") == 3 and number(rig, "ends", "last") == 1
    assert number(rig, "gate", "passed") == truth.total()
    assert sorted(closed) == ([0, 1, 2] if death == 4 else [0, 1]), "windows that were delivered are not again"
    rig.start()
    rig.end(deliver=take)
    assert number(rig, "ends", "last") == 1
