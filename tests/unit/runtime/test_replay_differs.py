"""A replayed batch that does something else than the first time is told, and all who have had it apply the same."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.coordinator.recovery.replay_check import ReplayCheck
from afspark.errors import StoreNotWritable
from afspark.graph.node import SOURCE, Edge, Node
from afspark.graph.pipeline import Pipeline
from afspark.model.effect_digest import EffectDigest
from afspark.model.operator import Operator
from afspark.model.states import HashTable, Numeric, StateSpec
from afspark.numbers import Batch
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.protocol.reports import Status, TaskReport
from afspark.sources import Source
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.test_barrier_snapshot import RefusingStore
from tests.unit.runtime.test_engine_damage import flip_a_bit
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_sparkless import words

pytestmark = pytest.mark.some(3)

EXACT: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=4)]
#: What no two calls get alike, in one process: the rigs of this file run everything in theirs.
ODD = itertools.count()


class Draws(Operator):
    """Sends its items on with a mark. ``odd``: what of it is another one every time."""

    key = ("word",)

    def __init__(self, odd: str = "") -> None:
        self.odd = odd

    def states(self) -> Mapping[str, StateSpec]:
        return {"drawn": HashTable(), "total": Numeric(value="float64")}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["drawn"].add(items.column("word"), next(ODD) if self.odd == "state" else 1)
        states["total"].add(next(ODD) + 0.1 if self.odd == "float" else 0.1 * items.num_rows)
        mark = next(ODD) if self.odd == "items" else 7
        return pa.record_batch({"word": items.column("word"), "mark": pa.array([mark] * items.num_rows)})


class Running(Operator):
    """Sends for each item how often its word has come: what an approximate one cannot make again."""

    key = ("word",)

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["counts"].add(items.column("word"), 1)
        marks = states["counts"].get(items.column("word"))
        return pa.record_batch({"word": items.column("word"), "mark": pa.array(marks, pa.int64())})


class Marks(Operator):
    """Adds up marks by word."""

    key = ("word",)

    def states(self) -> Mapping[str, StateSpec]:
        return {"marks": HashTable()}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> pa.RecordBatch:
        states["marks"].add(items.column("word"), items.column("mark"))
        return items


def chain(first: Operator, tolerance: Tolerance, then: Tolerance | None = None) -> Callable[[Source], Pipeline]:
    """The operator, what adds up its marks, and the same once more."""
    then = then or tolerance

    def pipeline(source: Source) -> Pipeline:
        return Pipeline(
            sources={SOURCE: source},
            nodes=(
                Node(name="calm", operator=Draws(), inputs=(Edge(SOURCE, (words,)),), tolerance=then),
                Node(name="first", operator=first, inputs=(Edge("calm"),), keyed=True, tolerance=tolerance),
                Node(name="second", operator=Marks(), inputs=(Edge("first"),), keyed=True, tolerance=then),
                Node(name="third", operator=Marks(), inputs=(Edge("second"),), keyed=True, tolerance=then),
            ),
        )

    return pipeline


@pytest.mark.some(3)
@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
@pytest.mark.parametrize("odd", ["state", "float", "items"])
def test_an_operator_that_is_not_deterministic_is_told(
    make_rig: MakeRig, odd: str, tolerance: Tolerance, caplog: pytest.LogCaptureFixture
) -> None:
    one = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Draws(odd), tolerance))
    rig = one.rig
    rig.go(4)
    assert rig.bound("first") == 0 and not caplog.records
    rig.lose(1, operator="first")
    rig.go()
    assert [rig.bound(name) for name in ("calm", "first", "second", "third")] == [0, math.inf, math.inf, math.inf]
    told = [entry for entry in rig.ledger if entry.recovery and entry.recovery.differed]
    assert {entry.loss.operator for entry in told} == {"first", "second", "third"}
    assert not any(entry.recovery.covered for entry in told if entry.recovery)
    first = next(record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "worker 1 of 'first' in batch" in first and "second" in first
    assert rig.delivered == list(range(6)), "the query goes on"
    rig.start().ready()
    assert rig.bound("second") == math.inf, "a driver that comes later tells the same"


@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_a_deterministic_one_is_not(make_rig: MakeRig, tolerance: Tolerance, caplog: pytest.LogCaptureFixture) -> None:
    one = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Running(), tolerance))
    rig = one.rig
    rig.go(4)
    for name in ("first", "second"):
        rig.lose(1, operator=name)
    rig.go()
    one.assert_as_calm()
    assert {operator for operator, _, _ in one.again()} == {"first", "second"}
    assert rig.bound("third") == 0 and not caplog.records


def _sums(one: LaggingRig, name: str, sender: str, since: int) -> Counter[str]:
    """What an operator has if it has applied, since a batch, what its sender keeps now."""
    one.calm.go(since - len(one.calm.delivered))
    sums = Counter({word: count for share in one.calm.cells(name) for word, count in share["marks"].items()})
    for batch in range(since, len(one.rig.delivered)):
        for share in one.rig.sent(batch, sender):
            for item in share:
                sums[item["word"]] += item["mark"]
    return sums


@pytest.mark.parametrize("lost", [("first",), ("first", "second")], ids=" ".join)
@pytest.mark.parametrize("restarted", [False, True], ids=["same driver", "new driver"])
def test_whoever_reads_from_an_approximate_one_applies_what_that_makes_again(
    make_rig: MakeRig, restarted: bool, lost: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Of what an approximate operator has sent, those downstream that survive have had something else than is there
    after a replay: they go back, so that nobody has applied one part of the one and the rest of the other.
    """
    one = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Running(), Approximate(1e6), MiniBatch()))
    rig = one.rig
    rig.go(5)
    since = rig.driver.commits.records.covered.batch + 1
    if restarted:
        rig.start()
    for name in lost:
        rig.lose(0, operator=name)
    rig.go()
    if not restarted:
        since += 1  # The record under way was waited for.
    assert any("goes back" in entry.loss.cause for entry in rig.ledger if entry.loss.operator == "second")
    for name, sender in (("second", "first"), ("third", "second")):
        found = {word: count for share in rig.cells(name) for word, count in share["marks"].items()}
        assert found == _sums(one, name, sender, since), name
        assert rig.bound(name) == 0
    assert rig.bound("first") > 0 and not [one for one in caplog.records if one.levelname == "WARNING"]


def test_after_a_restart_survivors_tell_that_something_else_is_sent(make_rig: MakeRig) -> None:
    """What the lost worker had done has gone with the driver; those that had its items know what they were."""
    one = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Draws("items"), MiniBatch()))
    rig = one.rig
    rig.go(5)
    rig.start()
    rig.lose(0, operator="first")
    rig.go()
    assert [rig.bound(name) for name in ("calm", "first", "second", "third")] == [0, math.inf, math.inf, math.inf]


def _restarted_without_its_newest_record(make_rig: MakeRig, pipeline: Callable[[Source], Pipeline]) -> LaggingRig:
    """All state is gone, and so is the record that covered the last batches: they are replayed from the one before."""
    one = LaggingRig(make_rig, Lag.NOTHING, pipeline=pipeline, batches=8)
    rig = one.rig
    rig.go(6)
    flip_a_bit(rig.records()[-1])
    rig.lose()
    rig.start()
    rig.go()
    assert any(replayed for replayed in (entry.recovery.replayed for entry in rig.ledger if entry.recovery))
    return one


@pytest.mark.some(3)
@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
@pytest.mark.parametrize("odd", ["state", "float", "items"])
def test_what_batches_did_is_known_after_their_record_their_driver_and_their_workers(
    make_rig: MakeRig, odd: str, tolerance: Tolerance, caplog: pytest.LogCaptureFixture
) -> None:
    rig = _restarted_without_its_newest_record(make_rig, chain(Draws(odd), tolerance)).rig
    assert [rig.bound(name) for name in ("calm", "first", "second", "third")] == [0, math.inf, math.inf, math.inf]
    assert any("of 'first' in batch" in record.getMessage() for record in caplog.records)
    assert rig.delivered == list(range(8)), "the query goes on"


@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_a_deterministic_one_is_not_told_then(make_rig: MakeRig, tolerance: Tolerance) -> None:
    one = _restarted_without_its_newest_record(make_rig, chain(Running(), tolerance))
    one.assert_as_calm()
    assert one.rig.bound("third") == 0


def test_a_driver_that_dies_while_it_tells_has_told(make_rig: MakeRig) -> None:
    """The ledger has the loss, which is about the operator as a whole, and not what follows from it."""
    one = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Draws("state"), MiniBatch()))
    rig = one.rig
    rig.checkpoint.mkdir()
    store = RefusingStore(str(rig.checkpoint), "/recovery")
    rig.open_store = lambda place: store
    rig.go(4)
    rig.lose(1, operator="first")
    store.refuses = True
    with pytest.raises(StoreNotWritable):
        rig.go(1)
    store.refuses = False
    rig.start().ready()
    assert rig.bound("first") == math.inf
    rig.go()
    assert rig.bound("first") == math.inf


def test_a_state_of_an_approximate_backup_is_no_reason_to_doubt_its_operator(make_rig: MakeRig) -> None:
    """The batches are replayed upon what a backup within θ holds; they were applied upon the state itself."""
    rig, truth = make_rig(tolerance=Approximate(400.0))
    rig.go(3)
    rig.start(tolerance=MiniBatch())
    rig.go(2)
    for record in rig.records()[-2:]:
        flip_a_bit(record)
    rig.lose()
    rig.start()
    rig.go()
    assert max(entry.recovery.replayed for entry in rig.ledger if entry.recovery) == 2
    assert 0 < worst(truth, rig.counts()) <= rig.bound() < math.inf


def test_an_exact_policy_replays_upon_what_an_approximate_one_has_backed_up(make_rig: MakeRig) -> None:
    """What it does then is something else than the first time, by no more than the bound."""
    one = LaggingRig(make_rig, Lag.RECORDS, tolerance=Approximate(400.0))
    rig = one.rig
    rig.go(3)
    rig.start(tolerance=MiniBatch())
    rig.driver.ready()
    rig.lose(0)
    rig.go()
    assert [entry.covered for entry in rig.ledger] == [True]
    missing = one.truth - rig.counts()
    assert 0 < max(missing.values()) <= rig.bound() == 100.0


def test_an_approximate_operator_pays_for_no_digests_that_nobody_compares(make_rig: MakeRig) -> None:
    """It is replayed upon another state: only the number of its items, and what others were sent, can be the same."""
    rig = LaggingRig(make_rig, Lag.RECORDS, pipeline=chain(Draws(), Approximate(1e6), MiniBatch())).rig
    rig.go(3)
    effects = {run.name: set(run.reports[0].effects) for run in rig.driver.runs}
    assert effects["first"] == {"items", "port all"}
    assert effects["calm"] == {"items", "whole", "state drawn", "state total", "port all"}


@pytest.mark.parametrize("before", [True, False], ids=["approximate then exact", "exact then approximate"])
def test_digests_of_an_approximate_operator_are_no_reason_to_doubt_an_exact_one(before: bool) -> None:
    """The policy has changed between the batch and its replay: what one of both has no digests of is not compared."""
    check = ReplayCheck([Node(name="one", operator=Draws(), inputs=(Edge(SOURCE),), tolerance=MiniBatch())])
    sent = {"items": EffectDigest(5), "port rows": EffectDigest(5, 7)}
    whole = {**sent, "whole": EffectDigest(1), "state drawn": EffectDigest(2, 3)}
    bare = {"items": EffectDigest(5)}
    first, now = (bare, whole) if before else (whole, bare)
    check.note("one", Batch(4), [_report(first)], whole=True)
    assert not check.differences("one", Batch(4), [_report(now)])
    (found,) = check.differences("one", Batch(4), [_report({**now, "items": EffectDigest(6)})])
    assert found.labels == ("items",)


def _report(effects: Mapping[str, EffectDigest]) -> TaskReport:
    return TaskReport(worker=0, status=Status.APPLIED, host="a", effects=dict(effects))
