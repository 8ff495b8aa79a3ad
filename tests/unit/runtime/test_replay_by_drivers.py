"""Drivers that die while records are behind: the next one replays what was committed, and hands nothing out twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from afspark.algorithms import WordCount
from afspark.cluster.local.processes import forked
from afspark.errors import AnotherDriver, UsageError
from afspark.model.operator import WorkerContext
from afspark.model.windows import Hopping
from afspark.numbers import Batch
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.store import Ledger, open_store
from afspark.store.naming import FOLDER
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import die
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_replay_of_pipelines import line

pytestmark = pytest.mark.some(3)

LAGS = [Lag.RECORDS, pytest.param(Lag.BACKUPS, marks=pytest.mark.thorough)]
POLICIES: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=3), BarrierSnapshot(batches=2, recovery="full")]
LOST: list[tuple[int, ...] | None] = [None, (0,), (0, 1)]


def name_of(tolerance: Tolerance) -> str:
    return f"{tolerance.name} {getattr(tolerance, 'recovery', '')}".strip()


def killed_after(one: LaggingRig, batches: int) -> None:
    """A driver runs so many batches and is killed before the next one has an effect."""
    one.rig.drive_and_die(lambda: (one.rig.go(batches), die()))


@pytest.mark.some(2)
@pytest.mark.parametrize("lost", LOST, ids=str)
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
@pytest.mark.parametrize("lag", LAGS)
def test_a_killed_driver(make_rig: MakeRig, lag: Lag, tolerance: Tolerance, lost: tuple[int, ...] | None) -> None:
    one = LaggingRig(make_rig, lag, batches=7, tolerance=tolerance, keyed=True)
    rig = one.rig
    killed_after(one, 5)
    assert len(rig.records()) == 1, "all other records were behind"
    if lost:
        rig.lose(*lost)
    rig.go()
    assert rig.delivered == [5, 6], "sinks have had what was committed"
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    if tolerance.takes_all_back:
        return
    assert {worker for _, worker, _ in one.again()} == set(lost or ())
    assert {entry.loss.worker for entry in rig.ledger} == set(lost or ())
    if lost:
        assert rig.members[lost[0]].incarnation == 1


@pytest.mark.parametrize("lost", LOST, ids=str)
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("theta", [40.0, 400.0])
def test_what_approximate_tells_over_drivers(
    make_rig: MakeRig, theta: float, lag: Lag, lost: tuple[int, ...] | None
) -> None:
    one = LaggingRig(make_rig, lag, batches=8, tolerance=Approximate(theta))
    rig = one.rig
    for batches in (3, 2, 2):
        killed_after(one, batches)
        if lost:
            rig.lose(*lost)
    rig.go()
    assert worst(one.truth, rig.counts()) <= rig.bound() <= theta
    assert lost or rig.counts() == one.truth


@pytest.mark.some(2)
@pytest.mark.parametrize("lost", LOST, ids=str)
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
@pytest.mark.parametrize("lag", LAGS)
def test_killed_again_during_the_replay(
    make_rig: MakeRig, lag: Lag, tolerance: Tolerance, lost: tuple[int, ...] | None
) -> None:
    one = LaggingRig(make_rig, lag, batches=7, tolerance=tolerance, keyed=True)
    rig = one.rig
    killed_after(one, 5)
    if lost:
        rig.lose(*lost)
    for tasks in (1, 3, 6, 9):
        rig.drive_and_die(lambda tasks=tasks: (interrupt(one, tasks, die), rig.go(), die()))
        rig.hosts.before = None
    rig.go()
    assert rig.counts() == one.truth
    one.assert_as_calm()
    assert rig.committed == 6


def interrupt(one: LaggingRig, tasks: int, what: Callable[[], object]) -> None:
    """Something happens before the task of that number begins."""
    left = [tasks]

    def before(kind: str, partition: int, attempt: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            what()

    one.rig.hosts.before = before


@pytest.mark.some(4)
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("tasks", range(1, 16, 2))
def test_lost_again_during_the_replay(make_rig: MakeRig, tasks: int, lag: Lag, tolerance: Tolerance) -> None:
    """Whoever is replayed, and whoever is not, may be lost on the way."""
    one = LaggingRig(make_rig, lag, tolerance=tolerance, keyed=True)
    rig = one.rig
    rig.go(5)
    rig.lose(0)
    interrupt(one, tasks, rig.lose)
    rig.go()
    rig.hosts.before = None
    assert rig.counts() == one.truth
    one.assert_as_calm()
    assert rig.delivered == list(range(6))


@pytest.mark.parametrize("lost", [None, "gate", "tally", "ends"])
@pytest.mark.parametrize("lag", LAGS)
def test_a_pipeline_whose_driver_is_killed(make_rig: MakeRig, lag: Lag, lost: str | None) -> None:
    times = (1.0, 4.0, 12.0, 13.0, 27.0, 38.0)
    one = LaggingRig(make_rig, lag, pipeline=line(MiniBatch(), Hopping(10, by="processing")))
    rig = one.rig
    rig.drive_and_die(lambda: (one.go(*times[:5]), die()))
    if lost:
        rig.lose(0, operator=lost)
    one.go(*times[5:])
    one.assert_as_calm(*times)
    assert rig.delivered == [5]


@pytest.mark.some(3)
@pytest.mark.parametrize("phase", FaultPhase)
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
def test_failures_of_the_whole_system(make_rig: MakeRig, tolerance: Tolerance, lag: Lag, phase: FaultPhase) -> None:
    """Workers lose their state and their processes at every moment of a batch."""
    faults = FaultPlan(frozenset(InjectedFailure(batch, phase) for batch in (2, 4)), "replay")
    one = LaggingRig(make_rig, lag, hosts={"processes": forked}, tolerance=tolerance, keyed=True, faults=faults)
    one.rig.go()
    assert one.rig.counts() == one.truth and one.rig.bound() == 0
    assert set(one.rig.delivered) == set(range(6))


@pytest.mark.some(3)
@pytest.mark.parametrize("damage", ["deleted", "torn"])
@pytest.mark.parametrize("lost", LOST, ids=str)
@pytest.mark.parametrize("behind", [False, True], ids=["in time", "behind"])
@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(0.0), BarrierSnapshot(batches=2)], ids=name_of)
def test_the_newest_record_is_damaged(
    make_rig: MakeRig, tolerance: Tolerance, behind: bool, lost: tuple[int, ...] | None, damage: str
) -> None:
    """The one before it is as good: what came since can be replayed."""
    one = LaggingRig(make_rig, Lag.NOTHING, batches=7, tolerance=tolerance, max_replay_seconds=1000.0 * behind)
    rig = one.rig
    killed_after(one, 5)
    newest = rig.records()[-1]
    assert len(rig.records()) > 1
    if damage == "deleted":
        newest.unlink()
    else:
        newest.write_bytes(newest.read_bytes()[:-7])
    if lost:
        rig.lose(*lost)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert rig.delivered == [5, 6]


@pytest.mark.parametrize("lost", [False, True], ids=["", "lost"])
@pytest.mark.parametrize("lag", LAGS)
def test_an_older_driver_hears_of_the_newer_one(make_rig: MakeRig, lag: Lag, lost: bool) -> None:
    """It is behind with its records when another one takes over and runs the batch that both of them planned."""
    one = LaggingRig(make_rig, lag, tolerance=MiniBatch(), keyed=True)
    rig = one.rig
    rig.go(3)
    old, handed_out = rig.driver, []
    rig.start()
    rig.go(1)
    if lost:
        rig.lose(0)
    with pytest.raises(AnotherDriver):
        old.run(Batch(3), None, handed_out.append)
    old.close()
    assert handed_out == []
    assert Ledger(open_store(str(rig.checkpoint)).below(FOLDER)).entries() == [], "it declares nothing"
    rig.go()
    assert rig.counts() == one.truth
    assert [entry.loss.worker for entry in rig.ledger] == [0] * lost


def test_an_older_driver_that_stops_touches_nothing(make_rig: MakeRig) -> None:
    """`close` makes records durable; those of a driver that has been followed by another one are not wanted."""
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=MiniBatch(), keyed=True)
    rig = one.rig
    rig.go(3)
    old = rig.driver
    rig.start()
    rig.go(1)
    rig.lose(0)
    old.close()
    assert Ledger(open_store(str(rig.checkpoint)).below(FOLDER)).entries() == [], "it declares nothing"
    rig.go()
    assert rig.counts() == one.truth
    assert [entry.loss.worker for entry in rig.ledger] == [0]


@pytest.mark.parametrize("lost", [False, True], ids=["", "lost"])
def test_input_that_is_gone_when_somebody_is_lost_later(make_rig: MakeRig, lost: bool) -> None:
    """The driver that was started needed none of it, because everybody had applied it."""
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=MiniBatch())
    rig = one.rig
    killed_after(one, 5)
    gone = rig.root / "input" / "0009.txt"
    gone.unlink()
    rig.start().ready()
    assert rig.ledger == [] and rig.bound() == 0
    if lost:
        rig.lose()
    rig.go()
    assert rig.bound() == (math.inf if lost else 0)
    told = [name for entry in rig.ledger if entry.recovery for name in entry.recovery.damaged]
    assert told == [str(gone)] * lost


@pytest.mark.parametrize("tolerance", POLICIES, ids=name_of)
def test_spark_is_not_let_forget_what_has_to_be_replayed(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """A start with a smaller `minBatchesToRetain` is refused while records are behind, before Spark has begun."""
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=tolerance, keyed=True)
    rig = one.rig
    killed_after(one, 5)
    driver = rig.start(offsets_kept=4)
    with pytest.raises(UsageError, match=r"1 to 4 .*minBatchesToRetain is 4") as caught:
        driver.check_unrecorded()
    assert caught.value.needed == 5
    rig.lose()
    rig.start(offsets_kept=caught.value.needed).check_unrecorded()
    rig.go(1)
    rig.start(offsets_kept=2).check_unrecorded()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()


def test_spark_is_not_let_forget_while_a_batch_of_an_earlier_driver_has_no_record(make_rig: MakeRig) -> None:
    """Workers had applied it as no barrier, so that the one after it is the first with a record."""
    one = LaggingRig(make_rig, Lag.RECORDS, batches=8, tolerance=BarrierSnapshot(batches=100), keyed=True)
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(5), rig.go(1, deliver=refused)))
    with pytest.raises(UsageError, match="1 to 4 ") as caught:
        rig.start(offsets_kept=1).check_unrecorded()
    kept = caught.value.needed
    rig.start(offsets_kept=kept).check_unrecorded()

    def forget(batch: int) -> None:
        """As Spark does when it begins a batch."""
        for path in (rig.checkpoint / "offsets").iterdir():
            if int(path.name) < batch - kept:
                path.unlink()

    def forget_and_die(batch: int) -> None:
        forget(batch)
        die()

    rig.drive_and_die(lambda: (forget(5), rig.go(1), rig.go(1, deliver=forget_and_die)))
    rig.lose()
    rig.start(offsets_kept=100)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()


def test_nobody_is_refused_for_what_spark_has_forgotten_already(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=MiniBatch())
    rig = one.rig
    killed_after(one, 5)
    (rig.checkpoint / "offsets" / "0").unlink()
    rig.start(offsets_kept=2).check_unrecorded()
    rig.go()
    assert rig.counts() == one.truth, "all state is there"


class Told(WordCount):
    """Writes down when it hears of a loss."""

    heard: Path

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        with self.heard.open("a") as file:
            file.write("lost\n")


def refused(batch: int) -> NoReturn:
    die()


@pytest.mark.parametrize("theta", [0.0, 40.0])
@pytest.mark.parametrize("moment", ["before the next batch", "in the next batch"])
def test_an_operator_hears_of_a_loss_once_however_many_drivers_die(
    make_rig: MakeRig, tmp_path: Path, moment: str, theta: float
) -> None:
    """A worker is lost while records are behind, and the drivers that replay what it lacks die one after the other."""
    operator = Told()
    operator.heard = tmp_path / "heard"
    one = LaggingRig(make_rig, Lag.RECORDS, batches=7, tolerance=Approximate(theta), operator=operator)
    rig = one.rig
    killed_after(one, 4)
    rig.lose(0)
    for _ in range(2):
        if moment == "before the next batch":
            rig.drive_and_die(lambda: (rig.start().ready(), die()))
        else:
            rig.drive_and_die(lambda: rig.go(1, deliver=refused))
    assert operator.heard.exists() == (moment == "in the next batch")
    rig.go()
    assert operator.heard.read_text() == "lost\n"
    assert [entry.loss.worker for entry in rig.ledger] == [0]
    assert worst(one.truth, rig.counts()) <= rig.bound() <= theta
