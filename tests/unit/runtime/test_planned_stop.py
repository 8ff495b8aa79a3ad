"""A planned stop costs nothing: whoever starts on hosts without any state has lost nothing, and nothing is counted."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.algorithms import WordCount
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.model.operator import WorkerContext
from afspark.model.states import HashTable, StateSpec
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import (
    Approximate,
    BackupNeed,
    BackupPlan,
    BarrierSnapshot,
    MiniBatch,
    NoBackup,
    Nothing,
    Tolerance,
    UpstreamBackup,
)
from afspark.policies.replication import SCHEMES
from afspark.store import Store
from afspark.task.backup_writes import BackgroundWrite
from tests.simulation.cluster import DelayedJob
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import NEVER, Lag, LaggingRig, WatchedEnvironment
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_replay_of_pipelines import Ends, line
from tests.unit.runtime.test_secondaries import HOSTS
from tests.unit.runtime.test_sparkless import Gate, Tally

pytestmark = pytest.mark.some(2)

#: Nothing would ever be backed up by itself.
LOOSE = Approximate(theta=1e9)
POLICIES: list[Tolerance] = [MiniBatch(), UpstreamBackup(), LOOSE, Approximate(theta=40), BarrierSnapshot(batches=3)]
WINDOWS: list[Window | None] = [
    None,
    Hopping(10, by="processing"),
    Sliding(10, 5, by="processing"),
    Decaying(0.5, 5, by="processing"),
]
TIMES = (1.0, 3.0, 6.0, 12.0, 13.0, 14.0, 22.0)


class Weights(WordCount):
    """Counts that can fade."""

    def states(self) -> Mapping[str, StateSpec]:
        return {"counts": HashTable(key="string", value="float64", operator_key=True)}

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].add(items.column("word"), items.column("count").cast(pa.float64()))


def stopped(rig: Rig) -> None:
    """As `Query.stop` ends it."""
    take_last_snapshot(rig.driver)
    rig.driver.close()


def moved(rig: Rig) -> None:
    """The query is stopped, and started where nobody has any state."""
    stopped(rig)
    rig.lose()
    rig.start()


def assert_nothing_was_counted(rig: Rig) -> None:
    assert rig.ledger and not any(entry.loss.counted for entry in rig.ledger)
    assert all(entry.recovery is None or entry.recovery.covered for entry in rig.ledger)
    for run in rig.driver.runs:
        assert all(member.failures == 0 for member in run.group.members)
        assert rig.bound(run.name) == 0


@pytest.mark.some(12)
@pytest.mark.parametrize("lag", list(Lag))
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("window", WINDOWS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: str(one.to_json()))
def test_a_start_on_new_hosts_is_exact(
    make_rig: MakeRig, tolerance: Tolerance, window: Window | None, keyed: bool, lag: Lag
) -> None:
    settings = {"tolerance": tolerance, "window": window, "keyed": keyed}
    one = LaggingRig(make_rig, lag, batches=len(TIMES), operator=Weights(), **settings)
    for part in (TIMES[:3], TIMES[3:5]):
        one.go(*part)
        moved(one.rig)
    one.go(*TIMES[5:])
    one.assert_as_calm(*TIMES)
    assert_nothing_was_counted(one.rig)
    assert not any(one.replayed().values())


@pytest.mark.parametrize(
    "tolerance",
    [MiniBatch(), Approximate(theta=1e9, items=1000), BarrierSnapshot(batches=50)],
    ids=lambda one: one.name,
)
def test_feedback_under_way_goes_along(
    make_rig: MakeRig, tolerance: Tolerance, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operator in (Gate, Tally, Ends):
        monkeypatch.setattr(operator, "alpha", 1.0)
    one = LaggingRig(make_rig, Lag.NOTHING, pipeline=line(tolerance, Hopping(10, by="processing")))
    starts = ((1.0, 12.0), (13.0, 27.0), (28.0, 29.0))
    for times in starts:
        if one.rig.engine is not None:
            moved(one.rig)
        one.go(*times)
    one.assert_as_calm(*(time for times in starts for time in times))
    assert_nothing_was_counted(one.rig)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_all_hosts_of_a_scheme_are_replaced(make_rig: MakeRig, scheme: Any) -> None:
    rig, truth = make_rig(batches=8, slots=HOSTS, tolerance=scheme(batches=3), keyed=True)
    rig.go(5)
    stopped(rig)
    shutil.rmtree(rig.segments)
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert_nothing_was_counted(rig)


def test_a_stop_without_a_flush_is_counted_as_before(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=LOOSE)
    rig.go(3)
    rig.driver.close()
    rig.lose()
    rig.start()
    rig.go()
    assert [entry.loss.counted for entry in rig.ledger] == [True, True] and rig.bound() > 0


class Forgetful(Approximate):
    """A mistake: a stop writes nothing, and the record says that all is durable."""

    def flush_plan(self, need: BackupNeed) -> BackupPlan:
        return NoBackup()


def test_a_flush_that_writes_too_little_is_noticed(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=Forgetful(theta=1e9))
    one.rig.go(3)
    moved(one.rig)
    one.rig.go()
    with pytest.raises(AssertionError):
        one.assert_as_calm()


class Slow(WatchedEnvironment):
    """What is written at rest never gets to the store."""

    def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
        return DelayedJob(lambda: None, NEVER)


def test_a_flush_that_runs_out_of_time_is_counted(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=LOOSE)
    rig = one.rig
    rig.go(3)
    usual, rig.hosts.on_host = rig.hosts.on_host, lambda host: Slow(name=host, log=rig.root / "applied", uploads=True)
    stopped(rig)
    assert "took longer than" in caplog.text
    rig.hosts.on_host = usual
    rig.lose()
    rig.start()
    rig.go()
    assert all(entry.loss.counted for entry in rig.ledger) and rig.bound() > 0


@pytest.mark.parametrize("begun", [True, False], ids=["", "no batch came"])
def test_a_session_that_is_stopped_before_its_query_is_told(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """As by `spark.stop()` at the end of a script: nobody can ask the workers for anything then."""
    rig, _ = make_rig(tolerance=LOOSE)
    rig.go(3 if begun else 0)
    monkeypatch.setattr(type(rig.hosts), "stopped", True)
    assert not take_last_snapshot(rig.driver)
    assert ("call query.stop() first" in caplog.text) == begun


@pytest.mark.parametrize("tolerance", [LOOSE, MiniBatch()], ids=lambda one: one.name)
def test_a_stop_after_a_loss_says_what_it_has_not_made_durable(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture, tolerance: Tolerance
) -> None:
    """Nobody has told the operator of the loss, so that the others' states are not flushed."""
    rig, _ = make_rig(tolerance=tolerance)
    rig.go(3)
    rig.lose(0)
    rig.driver.ready()
    caplog.clear()
    assert take_last_snapshot(rig.driver) == tolerance.exact
    assert ("one was lost after the last batch" in caplog.text) != tolerance.exact


@pytest.mark.parametrize("theta", [1e9, 15.0], ids=["", "lowered"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_state_that_survives_goes_on_as_if_nothing_had_been_written(
    make_rig: MakeRig, after: int, theta: float
) -> None:
    """Its backups build on those before the stop; a loss after the next start takes no more than what is told."""
    one = LaggingRig(make_rig, Lag.NOTHING, batches=8, tolerance=LOOSE, keyed=True)
    rig = one.rig
    rig.go(3)
    stopped(rig)
    rig.start(tolerance=Approximate(theta=theta))
    rig.go(after)
    rig.lose(0)
    rig.go()
    lacking = sum((one.truth - rig.counts()).values())
    assert lacking <= rig.bound() and not rig.counts() - one.truth


class Told(WordCount):
    """Counts how often it is told of a loss."""

    def on_recover(self, states: Mapping[str, Any], context: WorkerContext) -> None:
        states["counts"].add(pa.array(["told"]), pa.array([1], pa.int64()))


@pytest.mark.parametrize("again", [False, True], ids=["", "a driver dies before the next batch"])
def test_operators_hear_of_losses_and_not_of_a_planned_stop(make_rig: MakeRig, again: bool) -> None:
    rig, _ = make_rig(tolerance=MiniBatch(), operator=Told())
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    told = rig.counts()["told"]
    moved(rig)
    if again:
        rig.drive_and_die(lambda: (rig.start().ready(), die()))
        rig.start()
    rig.go()
    assert rig.counts()["told"] == told > 0


def test_a_query_that_was_killed_is_flushed_by_a_start_without_anything_new(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=LOOSE)
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(4), die()))
    rig.start()
    moved(rig)
    rig.go()
    one.assert_as_calm()
    assert_nothing_was_counted(rig)


def test_a_copied_checkpoint_goes_on_without_loss(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=LOOSE)
    rig = one.rig
    rig.go(3)
    stopped(rig)
    shutil.copytree(rig.checkpoint, rig.root / "copied")
    shutil.rmtree(rig.segments)
    shutil.rmtree(rig.checkpoint)
    rig.checkpoint = rig.root / "copied"
    rig.start()
    rig.go()
    one.assert_as_calm()
    assert_nothing_was_counted(rig)


def test_without_protection_a_stop_writes_nothing(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=Nothing())
    rig.go(3)
    stopped(rig)
    assert rig.objects() == [] and rig.records() == []


@pytest.mark.parametrize("tolerance", [MiniBatch(), BarrierSnapshot(batches=2), LOOSE], ids=lambda one: one.name)
def test_what_came_without_protection_after_a_stop_is_not_taken_for_durable(
    make_rig: MakeRig, tolerance: Tolerance
) -> None:
    """The record of the stop says that nothing would be lost, and none was written since."""
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(3)
    stopped(rig)
    rig.start(tolerance=Nothing())
    rig.go(2)
    rig.driver.close()
    rig.lose()
    rig.start(tolerance=Nothing())
    rig.go()
    assert rig.counts() != truth
    assert [entry.loss.counted for entry in rig.ledger] == [True, True] and rig.bound() == math.inf
