"""Where input can be replayed not every batch has a record of its own: the next one covers it, or a replay.

When a batch ends, its backups have just been spooled: what is written then is the record of the batch before.
"""

from __future__ import annotations

import pytest

from afspark.model.windows import Hopping
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Tolerance
from afspark.store import CommitRecord, open_store
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.lagging import Lag, LaggingRig
from tests.unit.runtime.sparkless import Hurried, Rig, die
from tests.unit.runtime.test_engine_failures import worst

pytestmark = pytest.mark.some(3)

EXACT: list[Tolerance] = [MiniBatch(), Approximate(0.0)]


class Dial(Hurried):
    """The time that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def apart(make_rig: MakeRig, clock: Dial | None = None, *, lag: Lag = Lag.NOTHING, **settings: object) -> LaggingRig:
    """A rig whose records are ten seconds apart, of a clock that stands unless somebody moves it."""
    given = {"record_seconds": 10.0, "batches": 8, **settings}
    return LaggingRig(make_rig, lag, hosts={"clock": clock or Dial()}, **given)


def recorded(rig: Rig) -> list[int]:
    """The batches that have a record."""
    return sorted(rig.driver.log._records)


def covered(rig: Rig) -> int:
    return int(rig.driver.commits.records.covered.batch)


@pytest.mark.parametrize("tolerance", EXACT, ids=lambda one: one.name)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
def test_there_are_fewer_records_than_batches_and_a_restart_goes_on_exactly(
    make_rig: MakeRig, tolerance: Tolerance, keyed: bool
) -> None:
    one = apart(make_rig, tolerance=tolerance, keyed=keyed)
    rig = one.rig
    rig.go(4)
    assert recorded(rig) == [0], "the first one is waited for, the others are not due"
    rig.driver.close()
    assert recorded(rig)[-1] == 3, "the last one is always written"
    rig.start()
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0 and not rig.ledger
    one.assert_as_calm()
    assert not one.again() and rig.delivered == list(range(8))


@pytest.mark.parametrize("lost", [(), (0,), (0, 1)], ids=str)
@pytest.mark.parametrize("keyed", [False, True], ids=["local", "keyed"])
def test_a_killed_driver_leaves_nothing_but_a_replay(make_rig: MakeRig, keyed: bool, lost: tuple[int, ...]) -> None:
    one = apart(make_rig, tolerance=MiniBatch(), keyed=keyed)
    rig = one.rig
    rig.drive_and_die(lambda: (rig.go(4), die()))
    assert len(rig.records()) == 1
    if lost:
        rig.lose(*lost)
    rig.go()
    assert rig.counts() == one.truth and rig.bound() == 0
    one.assert_as_calm()
    name = rig.run_of().name
    assert one.again() == {(name, worker, batch) for worker in lost for batch in (1, 2, 3)}
    assert rig.delivered == list(range(4, 8)), "sinks have had what was committed"


@pytest.mark.parametrize("lag", [Lag.NOTHING, Lag.RECORDS, Lag.BACKUPS])
@pytest.mark.parametrize("theta", [0.0, 40.0, 400.0])
def test_approximate_loses_no_more_than_it_tells(make_rig: MakeRig, theta: float, lag: Lag) -> None:
    one = apart(make_rig, lag=lag, tolerance=Approximate(theta))
    rig = one.rig
    for batches, lost in ((3, (0,)), (2, (0, 1)), (2, (1,))):
        rig.go(batches)
        rig.lose(*lost)
    rig.go()
    assert worst(one.truth, rig.counts()) <= rig.bound() <= theta
    assert rig.delivered == list(range(8))


def test_a_record_comes_when_it_is_due(make_rig: MakeRig) -> None:
    clock = Dial()
    rig = apart(make_rig, clock, tolerance=MiniBatch()).rig
    for clock.now in (0.0, 4.0, 9.9, 10.0, 15.0, 19.9, 20.0, 20.0):
        rig.go(1)
    assert recorded(rig) == [0, 2, 5]


def test_records_are_never_many_batches_apart(make_rig: MakeRig) -> None:
    """However fast they are: the offsets of batches that have to be replayed must still be there."""
    rig = apart(make_rig, tolerance=MiniBatch(), batches=12).rig
    rig.go()
    assert recorded(rig) == [0, 4, 8]


def test_the_record_after_a_loss_is_due_at_once(make_rig: MakeRig) -> None:
    one = apart(make_rig, tolerance=Approximate(400.0))
    rig = one.rig
    rig.go(3)
    rig.lose(0)
    rig.go(1)
    assert recorded(rig) == [0, 3]
    rig.go(1)
    assert recorded(rig) == [0, 3]
    rig.lose(0)
    rig.go(1)
    assert one.replayed() == {(rig.run_of().name, 0): 3}, "batches 1 and 2 first, and batch 4 afterwards"


def test_a_quiet_stream_is_recorded_as_well(make_rig: MakeRig) -> None:
    rig = apart(make_rig, tolerance=MiniBatch()).rig
    rig.go(3)
    assert covered(rig) == 0
    rig.driver.commits.go_on_at_rest()
    assert covered(rig) == 1 and recorded(rig) == [0, 1]


def test_whoever_asks_for_a_record_is_given_the_last_one(make_rig: MakeRig) -> None:
    rig = apart(make_rig, tolerance=MiniBatch()).rig
    rig.go(3)
    record = rig.driver.commits.settle()
    assert isinstance(record, CommitRecord) and record.batch == 2 == covered(rig)


def test_batches_that_end_the_stream_have_records(make_rig: MakeRig) -> None:
    one = apart(make_rig, tolerance=MiniBatch(), window=Hopping(5, by="processing"), batches=6)
    one.go(0.0, 1.0, 6.0, 7.0)
    assert recorded(one.rig) == [0]
    one.rig.end()
    assert covered(one.rig) == one.rig.driver.committed


def test_snapshots_have_a_pace_of_their_own(make_rig: MakeRig) -> None:
    rig = apart(make_rig, tolerance=BarrierSnapshot(batches=2)).rig
    rig.go()
    assert recorded(rig) == [0, 2, 4, 6]


def test_what_only_records_name_that_were_never_written_is_deleted(make_rig: MakeRig) -> None:
    """Every backup is a full image here, so that some are in no record of those that were written."""
    one = apart(make_rig, tolerance=MiniBatch(), batches=100, batch_bytes=1600)
    rig = one.rig
    rig.go(1)
    budget = rig.run_of().group.budget
    object.__setattr__(budget, "compaction", type(budget.compaction)(floor_cells=1, longest=1))
    rig.go()
    named = {name for _, record in rig.driver.log._records.values() for name in record.references()}
    there = set(open_store(str(rig.checkpoint)).below("afspark").list("objects"))
    newest = {ref.name for member in rig.members for ref in (*member.chain, *member.previous)}
    assert named <= there
    # What was left out since the last time that old objects were deleted may still be there.
    assert len(there - named - newest) <= 2 * 5 * 8
