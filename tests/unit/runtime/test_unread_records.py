"""Records that cannot be read, and state that is gone as well: nobody starts anew without saying so, nor twice."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from afspark.coordinator.recovery import coverage
from afspark.coordinator.told_bounds import told
from afspark.model.windows import Hopping
from afspark.policies import Approximate, BarrierSnapshot, MiniBatch, Nothing, Tolerance
from afspark.store import Ledger
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Rig, die
from tests.unit.runtime.test_engine_damage import flip_a_bit
from tests.unit.runtime.test_losses_without_backups import forget_offsets
from tests.unit.runtime.test_savepoints import begun, saved

policies = pytest.mark.parametrize(
    "tolerance", [MiniBatch(), Approximate(400.0), BarrierSnapshot(batches=1)], ids=lambda one: one.name
)


def lose_with_records(rig: Rig, records: int | None = None) -> None:
    """Worker 0 is gone, all records are damaged, or the newest ones, and nothing can be replayed."""
    rig.lose(0)
    for record in rig.records()[-records if records else None :]:
        flip_a_bit(record)
    forget_offsets(rig)


@policies
@pytest.mark.parametrize("records", [None, 2], ids=["no record can be read", "the last two records cannot be read"])
def test_a_worker_that_was_lost_before_is_lost_again(
    make_rig: MakeRig, records: int | None, tolerance: Tolerance
) -> None:
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(2)
    rig.lose(0)
    rig.go(2)
    lose_with_records(rig, records)
    rig.start()
    rig.go()
    assert rig.counts() != truth and rig.bound() == math.inf
    assert [(entry.loss.batch, entry.loss.incarnation, entry.covered) for entry in rig.ledger] == [
        (2, 0, True),
        (4, 1, False),
    ]
    rig.start()
    rig.driver.ready()
    assert rig.bound() == math.inf and len(rig.ledger) == 2


@pytest.mark.parametrize("later", [MiniBatch(), Nothing()], ids=lambda one: one.name)
def test_a_query_that_was_started_from_a_savepoint(make_rig: MakeRig, later: Tolerance) -> None:
    rig, truth = make_rig(tolerance=MiniBatch(), batches=7)
    rig.go(3)
    second = begun(rig, saved(rig), "second")
    second.go(2)
    second.lose()
    for record in second.records():
        flip_a_bit(record)
    second.start(tolerance=later)
    second.go()
    assert second.counts() != truth and second.bound() == math.inf
    assert [entry.covered for entry in second.ledger] == [True, True, False, False]


def when_declared(rig: Rig) -> None:
    """The first task after the driver has found its workers."""
    rig.hosts.run_stage = lambda *given: die()  # type: ignore[method-assign]
    rig.go(1)


def before_the_commit(rig: Rig) -> None:
    rig.go(1, deliver=lambda batch: die())


@pytest.mark.some(2)
@pytest.mark.parametrize("state", ["stays", "goes"])
@pytest.mark.parametrize("moment", [when_declared, before_the_commit])
@pytest.mark.parametrize("tolerance", [Approximate(400.0), Nothing()], ids=lambda one: one.name)
def test_drivers_that_die_meanwhile_declare_it_once(
    make_rig: MakeRig, tolerance: Tolerance, moment: Callable[[Rig], None], state: str
) -> None:
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(2)
    rig.lose(0)
    rig.go(2)
    lose_with_records(rig)
    for _ in range(4):
        rig.drive_and_die(partial(moment, rig))
        if state == "goes" and moment is before_the_commit:
            rig.lose(0)
        rig.start()
        losses = [(entry.loss.batch, entry.loss.incarnation) for entry in rig.ledger if entry.loss.worker == 0]
        assert losses == [(2, 0), (4, 1)]
    rig.go()
    (first, _) = rig.members
    assert (first.incarnation, rig.bound()) == (2, math.inf) and first.failures <= 2
    assert rig.counts() != truth


@policies
def test_a_record_is_damaged_after_a_loss_was_made_good_from_it(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """The driver has died before it could commit the batch, and the worker was lost once more."""
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(4)
    rig.lose(0)
    rig.drive_and_die(partial(before_the_commit, rig))
    assert [entry.covered for entry in Ledger(rig.open_store(str(rig.checkpoint)).below("afspark")).entries()] == [True]
    lose_with_records(rig)
    rig.start()
    rig.go()
    assert rig.counts() != truth and rig.bound() == math.inf
    assert [entry.loss.batch for entry in rig.ledger] == [4]


@pytest.mark.parametrize("tolerance", [MiniBatch(), Approximate(400.0)], ids=lambda one: one.name)
def test_a_loss_within_a_threshold_does_not_tell_that_backups_are_gone(make_rig: MakeRig, tolerance: Tolerance) -> None:
    """It was declared, its record cannot be read any more, and the next driver looks for no backups."""
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(3)
    rig.lose(0)
    rig.drive_and_die(partial(when_declared, rig))
    for record in rig.records():
        flip_a_bit(record)
    rig.start(tolerance=Nothing())
    rig.go(1)
    assert rig.counts() != truth and rig.bound() == math.inf
    rig.drive_and_die(partial(when_declared, rig))
    rig.start()
    rig.go()
    assert len([entry for entry in rig.ledger if entry.loss.worker == 0]) == 2


def test_a_driver_that_dies_while_it_says_so_is_followed_by_another_one(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an operator as a whole, which has windows: there is no worker whose recovery could be taken up."""
    rig, _ = make_rig(tolerance=MiniBatch(), window=Hopping(10, by="processing"))
    rig.go(3)
    lose_with_records(rig)
    with monkeypatch.context() as patch:
        patch.setattr(coverage, "Recovery", lambda **given: die())
        rig.drive_and_die(lambda: rig.go(1))
    rig.start()
    rig.go()
    assert told(rig.run_of())["counts"] == math.inf


@policies
@pytest.mark.parametrize("restarted", [False, True], ids=["the same driver", "a later driver"])
def test_a_chain_whose_beginning_no_record_names_any_more_has_a_hole(
    make_rig: MakeRig, tolerance: Tolerance, restarted: bool
) -> None:
    """The state has survived all records, and its batch was applied: what it wrote follows backups nobody knows."""
    rig, truth = make_rig(tolerance=tolerance)
    rig.go(3)
    rig.drive_and_die(partial(before_the_commit, rig))
    for record in rig.records():
        flip_a_bit(record)
    forget_offsets(rig)
    rig.start()
    rig.go(1)
    assert rig.bound() == 0.0, "nothing was lost so far"
    rig.lose(0)
    if restarted:
        rig.start()
    rig.go()
    assert rig.counts() != truth and rig.bound() == math.inf


def test_a_full_image_fills_the_hole(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=MiniBatch())
    rig.go(3)
    rig.drive_and_die(partial(before_the_commit, rig))
    for record in rig.records():
        flip_a_bit(record)
    forget_offsets(rig)
    rig.start()
    rig.go(2)
    rig.lose(0)
    rig.go()
    assert (rig.bound(), rig.counts()) == (0.0, truth)
