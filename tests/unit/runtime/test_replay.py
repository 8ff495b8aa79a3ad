"""Lost workers replay the batches that no durable record covers, and nobody else does anything again."""

from __future__ import annotations

import errno

import pytest

from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.resident.open_folder import OpenFolder
from afspark.resident.spool import SPOOL
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.test_engine_failures import worst

pytestmark = pytest.mark.some(3)

LAGS = [Lag.RECORDS, Lag.BACKUPS]
#: After batches 0 … 4: batch 0 is always waited for; of the records that nobody waits for the first is under way.
DURABLE = {Lag.RECORDS: 1, Lag.BACKUPS: 0}


@pytest.mark.some(3)
@pytest.mark.parametrize("lost", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("lag", LAGS)
def test_only_the_lost_apply_again_what_no_record_covers(
    make_rig: MakeRig, lag: Lag, keyed: bool, lost: tuple[int, ...]
) -> None:
    one = LaggingRig(make_rig, lag, tolerance=MiniBatch(), keyed=keyed)
    rig = one.rig
    rig.go(5)
    assert rig.driver.commits.records.covered.batch == 0, "the records are behind"
    rig.lose(*lost)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    name = rig.run_of().name
    past = range(DURABLE[lag] + 1, 5)
    assert one.replayed() == {(name, worker): len(past) for worker in lost}
    assert one.again() == {(name, worker, batch) for worker in lost for batch in past}
    assert rig.delivered == list(range(6))


@pytest.mark.some(3)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("theta", [0.0, 40.0, 400.0, 1e9])
def test_approximate_loses_no_more_than_it_tells(make_rig: MakeRig, theta: float, lag: Lag, keyed: bool) -> None:
    one = LaggingRig(make_rig, lag, batches=8, tolerance=Approximate(theta), keyed=keyed)
    rig = one.rig
    for batches, lost in ((3, (0,)), (2, (0, 1)), (2, (1,))):
        rig.go(batches)
        rig.lose(*lost)
    rig.go()
    assert worst(one.truth, rig.counts()) <= rig.bound() <= theta
    # Where nothing has to be backed up, a record waits for no backup.
    assert all(replayed > 0 for replayed in one.replayed().values()) or (theta, lag) == (1e9, Lag.BACKUPS)
    assert rig.delivered == list(range(8))


@pytest.mark.some(3)
@pytest.mark.parametrize("recovery", ["partial", "full"])
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
@pytest.mark.parametrize("lag", list(Lag))
def test_snapshots_are_exact(make_rig: MakeRig, lag: Lag, keyed: bool, recovery: str) -> None:
    tolerance = BarrierSnapshot(batches=2, recovery=recovery)
    one = LaggingRig(make_rig, lag, batches=8, tolerance=tolerance, keyed=keyed)
    rig = one.rig
    rig.go(4)
    rig.lose(0)
    rig.go(2)
    rig.lose()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert rig.delivered == list(range(8))
    assert sum(one.replayed().values()) > 0


POLICIES: list[Tolerance] = [MiniBatch(), BarrierSnapshot(batches=3), Approximate(0.0)]


@pytest.mark.parametrize("tolerance", POLICIES, ids=lambda one: one.name)
@pytest.mark.parametrize("lag", LAGS)
def test_a_worker_that_is_lost_again_and_again(make_rig: MakeRig, lag: Lag, tolerance: Tolerance) -> None:
    """Also before it has applied anything but what it had to replay."""
    one = LaggingRig(make_rig, lag, tolerance=tolerance)
    rig = one.rig
    rig.go(2)
    for _ in range(3):
        rig.go(1)
        rig.lose(0)
        rig.driver.ready()
        one.assert_as_calm()
        rig.lose(0)
    rig.go()
    assert rig.counts() == one.truth
    one.assert_as_calm()
    assert rig.delivered == list(range(6))


@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
def test_without_room_for_the_spool_a_batch_waits_for_the_store(
    make_rig: MakeRig, keyed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fails; what was spooled before stays in order with what is written past it."""
    one = LaggingRig(make_rig, Lag.BACKUPS, batches=8, tolerance=MiniBatch(), keyed=keyed)
    rig, real, full = one.rig, OpenFolder.write, False

    def write(folder: OpenFolder, name: str, data: bytes | memoryview) -> None:
        if full and name.startswith(SPOOL):
            raise OSError(errno.ENOSPC, "no room")
        real(folder, name, data)

    monkeypatch.setattr(OpenFolder, "write", write)
    rig.go(3)
    full = True
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    full = False
    rig.go(1)
    rig.lose(0, 1)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    assert rig.delivered == list(range(8))
