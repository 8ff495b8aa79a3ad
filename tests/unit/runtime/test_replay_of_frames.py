"""Replay where items come from a DataFrame: past batches are run on what Spark handed over for them."""

from __future__ import annotations

import gc
import math

import pytest

from afspark.graph.stream_frame import FrameFacts, FrameSource, why_not_replayable
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.framed import FramedRig, framed
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import die
from tests.unit.runtime.test_engine_damage import flip_a_bit
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_replay_of_pipelines import line

LAGS = [Lag.RECORDS, pytest.param(Lag.BACKUPS, marks=pytest.mark.thorough)]
POLICIES: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=3), Approximate(0.0)]


def name_of(tolerance: Tolerance) -> str:
    return tolerance.name


def remade(one: LaggingRig) -> list[int]:
    assert isinstance(one.rig, FramedRig)
    return one.rig.remade


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
@pytest.mark.parametrize("lag", LAGS)
def test_only_the_lost_apply_again(make_rig: MakeRig, lag: Lag, tolerance: Tolerance, keyed: bool) -> None:
    one = LaggingRig(framed(make_rig), lag, tolerance=tolerance, keyed=keyed)
    rig = one.rig
    rig.go(5)
    assert rig.driver.commits.records.covered.batch == 0, "the records are behind"
    rig.lose(0)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert {worker for _, worker, _ in one.again()} == {0}
    assert rig.delivered == list(range(7)) and remade(one) == []


def test_what_a_record_covers_is_let_go(make_rig: MakeRig) -> None:
    one = LaggingRig(framed(make_rig), Lag.NOTHING, tolerance=MiniBatch())
    rig = one.rig
    assert isinstance(rig, FramedRig)
    rig.go()
    gc.collect()
    assert [frame() is None for frame in rig.handed] == [True] * 6 + [False], "the last record was not heard of yet"


@pytest.mark.some(2)
@pytest.mark.parametrize("lost", [None, (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
@pytest.mark.parametrize("lag", LAGS)
def test_a_killed_driver(make_rig: MakeRig, lag: Lag, tolerance: Tolerance, lost: tuple[int, ...] | None) -> None:
    one = LaggingRig(framed(make_rig), lag, tolerance=tolerance)
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(5), die()))
    assert len(rig.records()) == 1, "all other records were behind"
    if lost:
        rig.lose(*lost)
    rig.go()
    assert remade(one) == ([1, 2, 3, 4] if lost else []), "survivors need no DataFrame"
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert rig.delivered == [5, 6]
    assert {worker for _, worker, _ in one.again()} == set(lost or ())


@pytest.mark.parametrize("theta", [0.0, 60.0])
@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
def test_rows_that_are_divided_otherwise_are_not_counted_twice(make_rig: MakeRig, keyed: bool, theta: float) -> None:
    """After a restart with other slots the rows of a lost worker may be in the partitions of one that survives."""
    one = LaggingRig(framed(make_rig), Lag.RECORDS, tolerance=Approximate(theta), keyed=keyed)
    rig = one.rig
    assert isinstance(rig, FramedRig)
    rig.drive_and_die(lambda: (rig.go(5), die()))
    rig.lose(1)
    rig.partitions = 2
    rig.go()
    assert worst(one.truth, rig.counts()) <= rig.bound() <= theta
    assert rig.counts() == one.truth or theta
    assert {entry.loss.worker for entry in rig.ledger} == {0, 1}


@pytest.mark.parametrize("lost", [False, True], ids=["", "lost"])
def test_what_cannot_be_made_again_is_told(make_rig: MakeRig, lost: bool) -> None:
    one = LaggingRig(framed(make_rig), Lag.RECORDS, tolerance=MiniBatch())
    rig = one.rig
    assert isinstance(rig, FramedRig)
    rig.drive_and_die(lambda: (rig.go(5), die()))
    rig.forgotten = {2}
    if lost:
        rig.lose(0)
    rig.go()
    assert rig.bound() == (math.inf if lost else 0)
    assert lost or rig.counts() == one.truth
    told = [entry.recovery.damaged for entry in rig.ledger if entry.recovery and entry.recovery.damaged]
    assert told == [("batch 2",)] * lost


@pytest.mark.some(2)
@pytest.mark.parametrize("lost", [None, "gate", "tally", "ends"])
@pytest.mark.parametrize("killed", [False, True], ids=["lives", "killed"])
def test_operators_behind_a_frame(make_rig: MakeRig, killed: bool, lost: str | None) -> None:
    times = (1.0, 4.0, 12.0, 13.0, 27.0, 38.0)
    one = LaggingRig(framed(make_rig), Lag.RECORDS, pipeline=line(MiniBatch()))
    rig = one.rig
    if killed:
        rig.drive_and_die(lambda: (one.go(*times[:5]), die()))
    else:
        one.go(*times[:5])
    if lost:
        rig.lose(0, operator=lost)
    one.go(*times[5:])
    one.assert_as_calm(*times)


def test_lost_while_survivors_are_asked(make_rig: MakeRig) -> None:
    """A driver that has found everybody asks them for nothing but reports, until one turns out to be lost."""
    one = LaggingRig(framed(make_rig), Lag.RECORDS, tolerance=MiniBatch())
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(5), die()))
    tasks: list[str] = []

    def before(kind: str, number: int, attempt: int) -> None:
        tasks.append(kind)
        if len(tasks) == 7:
            rig.lose(0)

    rig.hosts.before = before
    rig.go()
    rig.hosts.before = None
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert remade(one), "the loss came while batches were replayed"


def test_nobody_goes_ahead_of_records_that_could_not_be_replayed(make_rig: MakeRig) -> None:
    one = LaggingRig(framed(make_rig, "it forgets"), Lag.RECORDS, tolerance=MiniBatch())
    one.rig.go(5)
    assert one.rig.driver.commits.records.covered.batch == 4
    one.rig.lose(0)
    one.rig.go()
    assert one.rig.counts() == one.truth


FILES = FrameSource("files", {"path": "/in"})


@pytest.mark.parametrize(
    ("facts", "part"),
    [
        (FrameFacts(frozenset({"Project", "StreamingRelation"}), (FILES,)), ""),
        (FrameFacts(frozenset({"Union", "StreamingRelationV2"}), (FrameSource("kafka"), FrameSource("rate"))), ""),
        (FrameFacts(frozenset({"Aggregate"}), (FILES,)), "Aggregate"),
        (FrameFacts(frozenset({"Join", "Project"}), (FILES,)), "Join"),
        (FrameFacts(frozenset({"Project"}), (FILES,), deterministic=False), "rand"),
        (FrameFacts(frozenset({"Project"}), (FILES,), subqueries=1), "subquery"),
        (FrameFacts(frozenset({"Project"}), (FILES, FrameSource("socket"))), "socket"),
        (FrameFacts(frozenset({"Project"}), (FrameSource("files", {"cleansource": "delete"}),)), "cleanSource"),
        (FrameFacts(frozenset(), (FrameSource("files", {"ignoremissingfiles": "True"}),)), "ignoreMissingFiles"),
        (FrameFacts(frozenset(), (FrameSource("kafka", {"failondataloss": "false"}),)), "failOnDataLoss"),
    ],
)
def test_why_a_frame_cannot_be_replayed(facts: FrameFacts, part: str) -> None:
    why = why_not_replayable(facts)
    assert bool(why) == bool(part) and part in why


def test_a_user_can_answer_for_a_source_alone() -> None:
    assert why_not_replayable(FrameFacts(frozenset(), (FrameSource("mine"),)), lasting=True) == ""
    assert why_not_replayable(FrameFacts(frozenset({"Deduplicate"}), (FrameSource("mine"),)), lasting=True)


@pytest.mark.parametrize("keyed", [False, True], ids=["shares", "keyed"])
@pytest.mark.parametrize("partitions", [2, 3], ids=["divided otherwise", "the same"])
def test_rows_that_are_divided_otherwise_do_not_pass_for_another_operator(
    make_rig: MakeRig, keyed: bool, partitions: int
) -> None:
    """What the batches did is recorded, with how their rows were divided then."""
    one = LaggingRig(framed(make_rig), Lag.NOTHING, tolerance=BarrierSnapshot(batches=3), keyed=keyed)
    rig = one.rig
    assert isinstance(rig, FramedRig)
    rig.go(6)
    flip_a_bit(rig.records()[-1])
    rig.lose()
    rig.partitions = partitions
    rig.start()
    rig.go()
    assert remade(one) == [1, 2, 3, 4, 5]
    assert rig.counts() == one.truth and rig.bound() == 0
