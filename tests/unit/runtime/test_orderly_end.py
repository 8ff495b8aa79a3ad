"""How a query ends that is not killed: what is on its way to the store gets there, however its last batch ended."""

from __future__ import annotations

import pytest

from afspark.errors import CheckpointError
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.spool import upload
from afspark.store import open_store
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig, WatchedEnvironment

EXACT: list[Tolerance] = [MiniBatch(), Approximate(0.0), BarrierSnapshot(batches=3)]


class SinkFailed(Exception):
    """The sink could not take the rows."""


def refuse(batch: int) -> None:
    raise SinkFailed


def assert_store_has_all_that_records_name(one: LaggingRig) -> None:
    there = set(open_store(str(one.rig.checkpoint)).below("afspark").list("objects"))
    record = one.rig.driver.log.newest()
    assert record is not None and record.references() <= there


@pytest.mark.parametrize("lost", [(), (0,), (0, 1)], ids=str)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
def test_a_sink_that_raises_while_backups_wait_in_the_spool(
    make_rig: MakeRig, tolerance: Tolerance, keyed: bool, lost: tuple[int, ...]
) -> None:
    """The workers have applied the batch by then, and the record of an earlier one waits for their backups."""
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=7, tolerance=tolerance, keyed=keyed)
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
