"""Drivers that die at chosen moments, and the next one on the same checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from afspark.coordinator.ending import ENDING
from afspark.errors import CheckpointError
from afspark.policies import Approximate, MiniBatch, Nothing, Tolerance
from afspark.resident import SegmentRoot
from afspark.store.local import LocalStore
from tests.unit.runtime.conftest import MakeRig, write_file, write_words
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_engine_failures import worst
from tests.unit.runtime.test_engine_placement import promised

pytestmark = pytest.mark.some(3)

Moment = Callable[[Rig], None]
FATAL = 3
THETA = 400.0


def _while_delivering(rig: Rig) -> None:
    rig.go(deliver=lambda batch: die() if batch == FATAL else None)


class Fatal(LocalStore):
    """The driver dies when the record of a batch is written: before that, or after."""

    after = False

    def put(self, name: str, data: bytes) -> None:
        folder, _, last = name.rpartition("/")
        fatal = folder.endswith("/records") and int(last.partition("-")[0]) == FATAL
        if fatal and not self.after:
            die()
        super().put(name, data)
        if fatal:
            die()


class FatalAfterwards(Fatal):
    after = True


def _before_record(rig: Rig) -> None:
    rig.open_store = Fatal
    rig.go()


def after_record(rig: Rig) -> None:
    """Spark has not committed the batch that the record names."""
    rig.open_store = FatalAfterwards
    rig.go()


def _before_anything(rig: Rig) -> None:
    rig.go(FATAL - 1 - rig.committed)
    die()


def _between_the_workers(rig: Rig) -> None:
    rig.hosts.before = lambda kind, partition, attempt: die() if rig.committed == FATAL - 1 and partition else None
    rig.go()


MOMENTS = [_before_anything, _between_the_workers, _while_delivering, _before_record, after_record]


def _called(part: Any) -> str:
    """Names moments and policies in the ids of tests."""
    if isinstance(part, bool):
        return "keyed" if part else "shares"
    return part.name if isinstance(part, Tolerance) else part.__name__.strip("_").replace("_", " ")


moments = pytest.mark.parametrize("moment", MOMENTS, ids=_called)
#: `make test` takes one before the batch's record and one after it, `make thorough` all.
main_moments = pytest.mark.parametrize(
    "moment",
    [
        moment if moment in (_between_the_workers, after_record) else pytest.param(moment, marks=pytest.mark.thorough)
        for moment in MOMENTS
    ],
    ids=_called,
)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("moment", "tolerance", "keyed"),
    [
        # Approximate: whoever recovers instead of finding the state again would show an error.
        *((moment, Approximate(THETA), False) for moment in MOMENTS),
        (_between_the_workers, Approximate(THETA), True),
        (after_record, Approximate(THETA), True),
        # Without records there is nothing to go by but the segments themselves.
        (_before_anything, Nothing(), True),
        (_between_the_workers, Nothing(), False),
        (_while_delivering, Nothing(), False),
    ],
    ids=_called,
)
def test_surviving_state_is_found_again(make_rig: MakeRig, moment: Moment, tolerance: Tolerance, keyed: bool) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed)
    rig.drive_and_die(partial(moment, rig))
    assert rig.committed == FATAL - 1
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == [] and rig.bound() == 0


@pytest.mark.some(2)
@moments
@pytest.mark.parametrize(("tolerance", "keyed"), [(MiniBatch(), True), (Approximate(THETA), False)], ids=_called)
def test_state_lost_with_the_driver_is_recovered(
    make_rig: MakeRig, moment: Moment, tolerance: Tolerance, keyed: bool
) -> None:
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed)
    rig.drive_and_die(partial(moment, rig))
    rig.lose()
    rig.start()
    rig.go()
    error = worst(truth, rig.counts())
    assert error <= rig.bound() <= promised(tolerance)
    assert {entry.loss.worker for entry in rig.ledger} == {0, 1}
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)
    assert (error > 0) == isinstance(tolerance, Approximate)


@moments
def test_a_loss_after_the_restart_still_finds_every_backup(make_rig: MakeRig, moment: Moment) -> None:
    """What the first driver's workers wrote for the interrupted batch must not be swept by the second driver."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.drive_and_die(partial(moment, rig))
    rig.start()
    rig.go(1)
    rig.lose()
    rig.go()
    assert rig.counts() == truth
    assert [entry.recovery.damaged for entry in rig.ledger] == [(), ()]


@main_moments
def test_two_drivers_die_one_after_the_other(make_rig: MakeRig, moment: Moment) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    for _ in range(2):
        rig.drive_and_die(partial(moment, rig))
    rig.lose(1)
    rig.start()
    rig.go()
    assert rig.counts() == truth
    assert [entry.loss.worker for entry in rig.ledger] == [1]


def test_a_driver_that_dies_while_it_recovers_leaves_the_loss_counted_once(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=Approximate(THETA))

    def lose_then_die() -> None:
        rig.go(FATAL)
        rig.lose(0)
        rig.hosts.before = lambda kind, partition, attempt: die() if rig.ledger else None
        rig.go()

    rig.drive_and_die(lose_then_die)
    rig.start()
    rig.go()
    assert [(entry.loss.worker, entry.loss.counted) for entry in rig.ledger] == [(0, True)]
    assert rig.bound() == THETA / 4
    assert worst(truth, rig.counts()) <= THETA / 4
    assert rig.members[0].failures == 1
    assert rig.ledger[0].recovery is not None, "the recovery was never completed in the ledger"


def test_the_interrupted_batch_is_delivered_again(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=MiniBatch(), keyed=True, emits=True)
    rig.drive_and_die(partial(after_record, rig))
    rig.start()
    rig.go()
    assert rig.delivered == [FATAL, FATAL + 1, FATAL + 2]


def test_a_lower_limit_holds_from_the_restart_on(make_rig: MakeRig) -> None:
    """Cells that are not touched again must be backed up too when the user lowers the limit."""
    rig, truth = make_rig(tolerance=Approximate(4_000.0))
    truth.update(write_file(rig.root / "input", 4, ["once"] * 60))
    rig.go(5)
    assert rig.objects() == []
    rig.start(tolerance=Approximate(40.0))
    rig.go(1)
    rig.lose()
    truth += write_words(rig.root / "input", 4, first=24)
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() == 20.0


def test_a_run_without_backups_in_between_does_not_widen_the_bound(make_rig: MakeRig) -> None:
    """Approximate, then Nothing, then Approximate on one checkpoint: the third run has to catch up first."""
    rig, truth = make_rig(tolerance=Approximate(40.0))
    truth.update(write_file(rig.root / "input", 8, ["once"] * 60))
    rig.go(1)
    rig.start(tolerance=Nothing())
    rig.go(4)
    rig.start(tolerance=Approximate(40.0))
    rig.go(1)
    rig.lose()
    truth += write_words(rig.root / "input", 4, first=24)
    rig.go()
    assert worst(truth, rig.counts()) <= rig.bound() <= 40.0


@pytest.mark.parametrize("late", [2, 3], ids=["the batch that the second one has just run", "the one after it"])
def test_a_zombie_that_has_its_batch_in_hand_changes_nothing(make_rig: MakeRig, late: int) -> None:
    """The first driver comes back when a second one is at work."""
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(2)
    zombie = rig.engine
    assert zombie is not None
    rig.start()
    rig.go(1)
    with pytest.raises(CheckpointError):
        zombie.run(late, None, lambda number: None)  # type: ignore[arg-type]
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == []


def test_a_checkpoint_whose_spark_half_was_rewound_is_refused(make_rig: MakeRig) -> None:
    rig, _ = make_rig(tolerance=MiniBatch())
    rig.go(4)
    for part in ("commits", "offsets"):
        for batch in (1, 2, 3):
            (rig.checkpoint / part / str(batch)).unlink()
    rig.start()
    with pytest.raises(CheckpointError) as caught:
        rig.go()
    assert caught.value.batch == 1 and caught.value.newest == 3


def test_a_checkpoint_of_another_pipeline_is_refused(make_rig: MakeRig) -> None:
    rig, _ = make_rig()
    rig.go(1)
    with pytest.raises(CheckpointError):
        rig.start(workers=2, keyed=True)


def test_a_stream_is_not_ended_while_a_batch_of_spark_is_unfinished(make_rig: MakeRig) -> None:
    """The number of the end's first batch would be that of the batch Spark runs again."""
    rig, truth = make_rig(tolerance=MiniBatch(), batches=FATAL + 1)
    rig.drive_and_die(partial(_while_delivering, rig))
    rig.start()
    with pytest.raises(CheckpointError) as caught:
        rig.end()
    assert caught.value.batch == FATAL
    assert not rig.driver.store.list(ENDING), "nothing may say that the stream was ended"
    rig.go()
    rig.end()
    assert rig.driver.ended
    assert rig.counts() == truth


@pytest.mark.parametrize("tolerance", [Nothing(), Approximate(THETA)], ids=_called)
def test_a_checkpoint_may_be_moved(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """Its segments are those of the query, wherever its checkpoint is, also where others look for survivors."""
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(FATAL)
    moved = rig.root / "elsewhere"
    rig.checkpoint.rename(moved)
    rig.checkpoint = moved
    days = 86_400.0
    for _ in range(2):
        SegmentRoot(rig.segments, "another").clean(now=time.time() + 2 * days)
        rig.start()
        rig.go(1)
    for idle in (2, 20, 200):
        SegmentRoot(rig.segments, "another").clean(now=time.time() + idle * days)
    rig.go()
    assert rig.counts() == truth
    assert rig.ledger == []
