"""How a query ends that is not killed: what is on its way to the store gets there, however its last batch ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from afspark.algorithms import WordCount
from afspark.api.inspection import inspect
from afspark.cluster.local.processes import forked
from afspark.coordinator.last_snapshot import take_last_snapshot
from afspark.errors import CheckpointError
from afspark.model.windows import Hopping
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.segment import Segment
from afspark.resident.spool import upload
from afspark.store import Store, open_store
from afspark.task import rest_backup
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.pane_states import PaneStates
from tests.simulation.cluster import DelayedJob
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import NEVER, Lag, LaggingRig, WatchedEnvironment
from tests.unit.runtime.sparkless import die
from tests.unit.runtime.test_barrier_snapshot import RefusingStore
from tests.unit.runtime.test_replay_of_pipelines import line
from tests.unit.runtime.test_sparkless import number

pytestmark = pytest.mark.some(2)

EXACT: list[Tolerance] = [MiniBatch(), Approximate(0.0), BarrierSnapshot(batches=3)]


class SinkFailed(Exception):
    """The sink could not take the rows."""


def refuse(batch: int) -> None:
    raise SinkFailed


def assert_store_has_all_that_records_name(one: LaggingRig) -> None:
    there = set(open_store(str(one.rig.checkpoint)).below("afspark").list("objects"))
    record = one.rig.driver.log.newest()
    assert record is not None and record.references() <= there


@pytest.mark.some(2)
@pytest.mark.parametrize("lost", [(), (0,), (0, 1)], ids=str)
@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_a_sink_that_raises_while_backups_wait_in_the_spool(
    make_rig: MakeRig, tolerance: Tolerance, lost: tuple[int, ...]
) -> None:
    """The workers have applied the batch by then, and the record of an earlier one waits for their backups."""
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=7, tolerance=tolerance, keyed=True)
    rig = one.rig
    rig.go(4)
    assert rig.driver.commits.records.newest is not None, "a record waits"
    with pytest.raises(SinkFailed):
        rig.go(1, deliver=refuse)
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 3
    assert_store_has_all_that_records_name(one)
    if lost:
        rig.lose(*lost)
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert rig.delivered == list(range(7))


def test_a_repeated_answer_says_what_waits_now(make_rig: MakeRig) -> None:
    """A sink fails, the backups get to the store meanwhile, and the batch runs again."""
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=MiniBatch())
    rig = one.rig
    rig.go(2)
    with pytest.raises(SinkFailed):
        rig.go(1, deliver=refuse)
    assert all(report.pending for report in rig.run_of().reports)
    for folder in rig.segment_folders().values():
        upload(folder, rig.run_of().config.store)
    rig.go(1)
    assert not any(report.pending for report in rig.run_of().reports)
    assert rig.driver.commits.records.newest is None and rig.driver.commits.records.covered.batch == 2


class Idle(WatchedEnvironment):
    """Nothing gets from a spool to the store."""

    def upload(self, config: OperatorConfig, worker: int) -> None: ...


def test_a_record_is_refused_while_a_backup_that_it_names_is_pending(
    make_rig: MakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that was told to upload its backups says that they still wait."""
    one = LaggingRig(make_rig, Lag.BACKUPS, tolerance=MiniBatch())
    rig = one.rig
    rig.go(3)
    usual, rig.hosts.on_host = rig.hosts.on_host, lambda host: Idle(name=host, log=rig.root / "applied", uploads=False)
    with pytest.raises(CheckpointError) as caught:
        rig.driver.commits.settle()
    assert caught.value.batch == 1 and len(caught.value.lacking) == 2
    rig.driver.close()
    assert "will be replayed" in caplog.text
    with pytest.raises(CheckpointError):
        rig.end()
    rig.hosts.on_host = usual
    assert rig.driver.commits.records.covered.batch == 0
    assert_store_has_all_that_records_name(one)


class Fickle(WordCount):
    """Knows the words of the last batch alone."""

    def process(self, items: pa.RecordBatch, states: Mapping[str, Any]) -> None:
        states["counts"].remove(states["counts"].export().column("key"))
        super().process(items, states)


SNAPSHOTS: list[Tolerance] = [
    BarrierSnapshot(batches=3),
    BarrierSnapshot(batches=50),
    BarrierSnapshot(batches=50, asynchronous=False, recovery="full", full_every=1),
]


def name_of(tolerance: Tolerance) -> str:
    return str(tolerance.to_json())


def ended(one: LaggingRig, batches: int) -> None:
    """So many batches, and then an orderly end."""
    one.rig.go(batches)
    take_last_snapshot(one.rig.driver)
    one.rig.driver.close()


@pytest.mark.some(5)
@pytest.mark.parametrize("lost", [(), (0, 1)], ids=str)
@pytest.mark.parametrize("tolerance", [*EXACT, *SNAPSHOTS[1:]], ids=name_of)
@pytest.mark.parametrize("lag", list(Lag))
def test_after_an_orderly_end_nothing_is_replayed(
    make_rig: MakeRig, lag: Lag, tolerance: Tolerance, lost: tuple[int, ...]
) -> None:
    one = LaggingRig(make_rig, lag, batches=9, tolerance=tolerance)
    rig = one.rig
    for batches in (5, 2):
        ended(one, batches)
        assert rig.driver.commits.records.covered.batch == rig.committed
        assert_store_has_all_that_records_name(one)
        if lost:
            rig.lose(*lost)
        rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert not any(one.replayed().values()) and not one.again()
    assert rig.delivered == list(range(9))


@pytest.mark.some(2)
@pytest.mark.parametrize("restored", [False, True], ids=["survived", "restored"])
@pytest.mark.parametrize("operator", [WordCount(), Fickle()], ids=["words stay", "words go"])
@pytest.mark.parametrize("tolerance", SNAPSHOTS, ids=name_of)
def test_what_is_backed_up_after_an_end_builds_on_the_right_backups(
    make_rig: MakeRig, tolerance: Tolerance, operator: WordCount, restored: bool
) -> None:
    """A state that survives the end knows nothing of what was backed up then; one that was restored from it does, also
    if another driver finds it.
    """
    one = LaggingRig(make_rig, Lag.NOTHING, batches=9, tolerance=tolerance, operator=operator)
    rig = one.rig
    for _ in range(2):
        ended(one, 2)
        if restored:
            rig.lose(0)
            rig.start().ready()
        rig.start()
        rig.go(1)
        rig.lose(0)
        rig.driver.ready()
        one.assert_as_calm()
    rig.go()
    one.assert_as_calm()
    assert rig.bound() == 0


def test_feedback_that_waits_is_in_the_last_snapshot(make_rig: MakeRig) -> None:
    """The second batch of a driver is no barrier; it closes windows, and each sends something back."""
    starts = ((1.0, 12.0), (13.0, 27.0), (28.0, 29.0))
    one = LaggingRig(make_rig, Lag.NOTHING, pipeline=line(BarrierSnapshot(batches=50), Hopping(10, by="processing")))
    rig = one.rig
    for times in starts:
        if rig.engine is not None:
            take_last_snapshot(rig.driver)
            rig.driver.close()
            rig.lose()
            rig.start()
        one.go(*times)
    one.assert_as_calm(*(time for times in starts for time in times))
    assert number(rig, "gate", "returned") > 0 and not any(one.replayed().values())


def test_a_batch_that_spark_has_not_committed_is_left_to_the_next_start(make_rig: MakeRig) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=50))
    rig = one.rig
    rig.go(3)
    (rig.checkpoint / "commits" / "2").unlink()
    take_last_snapshot(rig.driver)
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 0
    rig.lose()
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0


@pytest.mark.parametrize("lost", [(), (0, 1)], ids=str)
@pytest.mark.parametrize("refused", ["/objects/", "/records/"])
def test_a_store_that_refuses_the_last_snapshot_costs_a_replay_and_nothing_else(
    make_rig: MakeRig, refused: str, lost: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=50))
    rig = one.rig
    store = RefusingStore(str(rig.checkpoint), what=refused)
    rig.checkpoint.mkdir()
    rig.open_store = lambda place: store
    rig.go(4)
    store.refuses = True
    take_last_snapshot(rig.driver)
    rig.driver.close()
    assert "will be replayed" in caplog.text
    assert rig.driver.commits.records.covered.batch == 0
    store.refuses = False
    if lost:
        rig.lose(*lost)
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert one.replayed() == {(rig.run_of().name, worker): 3 for worker in lost}


def test_a_store_that_takes_too_long_is_not_waited_for(make_rig: MakeRig, caplog: pytest.LogCaptureFixture) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=50))
    rig = one.rig

    class Slow(WatchedEnvironment):
        def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
            return DelayedJob(lambda: None, NEVER)

    rig.go(4)
    rig.hosts.on_host = lambda host: Slow(name=host, log=rig.root / "applied", uploads=True)
    take_last_snapshot(rig.driver)
    assert "took longer than" in caplog.text
    assert rig.driver.commits.records.covered.batch == 0


@pytest.mark.parametrize("told", [False, True], ids=["", "declared"])
def test_a_worker_that_is_lost_before_the_end_is_left_to_the_next_start(make_rig: MakeRig, told: bool) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=50))
    rig = one.rig
    rig.go(3)
    rig.lose(0)
    if told:
        rig.driver.ready()
    take_last_snapshot(rig.driver)
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 0
    assert len(rig.ledger) == told
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()


@pytest.mark.parametrize("phase", ["begun", "backed up", "undone"])
def test_a_process_that_dies_while_it_backs_up_at_rest_leaves_the_state_as_it_was(
    make_rig: MakeRig, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LaggingRig(make_rig, Lag.NOTHING, hosts={"processes": forked}, tolerance=BarrierSnapshot(batches=3))
    rig = one.rig
    rig.go(2)
    with monkeypatch.context() as patch:
        if phase == "begun":
            patch.setattr(rest_backup, "choose_images", lambda plan, moment: die())
        elif phase == "backed up":
            patch.setattr(PaneStates, "rollback", lambda self: die())
        else:
            patch.setattr(Segment, "clear_mark", lambda self: die())
        take_last_snapshot(rig.driver)
    assert rig.driver.commits.records.covered.batch == 0
    rig.go(2)
    rig.lose(0)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()


@pytest.mark.parametrize("lost", [(), (0, 1)], ids=str)
def test_a_batch_that_failed_is_in_no_last_snapshot(make_rig: MakeRig, lost: tuple[int, ...]) -> None:
    """Its workers have applied it, and Spark will run it again: also if the query was being stopped meanwhile."""
    one = LaggingRig(make_rig, Lag.NOTHING, tolerance=BarrierSnapshot(batches=50))
    rig = one.rig
    rig.go(3)
    with pytest.raises(SinkFailed):
        rig.go(1, deliver=refuse)
    take_last_snapshot(rig.driver)
    rig.driver.close()
    found = inspect(rig.checkpoint, segments=rig.root)
    assert found.batch == 0 and [entry.barrier for entry in found.snapshots] == [0]
    assert not any(worker.record.at_rest for worker in found.operators[0].workers if worker.record)
    if lost:
        rig.lose(*lost)
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()


@pytest.mark.parametrize("looked", [False, True], ids=["", "somebody has asked for results"])
@pytest.mark.parametrize("tolerance", [*EXACT, *SNAPSHOTS[1:]], ids=name_of)
@pytest.mark.parametrize("lag", [Lag.RECORDS, Lag.BACKUPS])
def test_an_orderly_end_after_a_kill_without_anything_new(
    make_rig: MakeRig, lag: Lag, tolerance: Tolerance, looked: bool
) -> None:
    """The query is started only to be ended well, before its hosts are given back."""
    window = Hopping(5, by="processing")
    one = LaggingRig(make_rig, lag, batches=7, tolerance=tolerance, keyed=True, window=window)
    rig, times = one.rig, (0.0, 1.0, 6.0, 7.0, 8.0, 12.0, 17.0)
    rig.drive_and_die(lambda: (one.go(*times[:5]), die()))
    rig.start()
    if looked:
        rig.driver.ready()
    take_last_snapshot(rig.driver)
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 4
    rig.lose()
    rig.start()
    one.go(*times[5:])
    one.assert_as_calm(*times)
    assert rig.bound() == 0 and not any(one.replayed().values())


def test_an_orderly_end_does_not_hide_a_loss_from_an_operator(make_rig: MakeRig) -> None:
    """Whoever is lost while the driver is down is told so with the next batch, so that no record may come before it."""
    one = LaggingRig(make_rig, Lag.RECORDS, tolerance=MiniBatch(), keyed=True)
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(4), die()))
    rig.lose(0)
    rig.start()
    take_last_snapshot(rig.driver)
    rig.driver.close()
    assert rig.driver.commits.records.covered.batch == 0
    rig.start()
    assert [member.recovering for member in rig.driver.ready()[0].group.members] == [True, False]
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
