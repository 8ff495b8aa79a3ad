"""What a query says of its losses and of its workers: the ledger, the thresholds in force, the progress of a batch."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

import afspark as af
from afspark import testing
from afspark.policies import Approximate, MiniBatch, Nothing
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.test_upstream_losses import ITEMS, WORDS, Seen


def counting(tolerance: af.Tolerance) -> Callable[[af.Stream], af.StatefulStream]:
    return lambda words: words.apply(Seen(), name="seen", keyed=True, tolerance=tolerance)


def test_the_time_of_a_recovery_includes_the_replay() -> None:
    with testing.run(counting(af.BarrierSnapshot(batches=50)), WORDS) as query:
        for _ in range(3):
            query.batch(ITEMS)
        query.kill_worker("seen", 0, "between", lose_state=True)
        query.batch(ITEMS)
        (entry,) = query.ledger()
        assert entry["replayed_batches"] == 2 and entry["replay_seconds"] > 0
        assert entry["recovery_seconds"] == entry["restore_seconds"] + entry["replay_seconds"]


@pytest.mark.parametrize("tolerance", [af.MiniBatch(), af.BarrierSnapshot(batches=1)], ids=lambda one: one.name)
def test_a_state_that_was_backed_up_has_not_drifted(tolerance: af.Tolerance) -> None:
    with testing.run(counting(tolerance), WORDS) as query:
        for _ in range(2):
            assert [worker["drift"] for worker in query.batch(ITEMS)["workers"]] == [{"seen": 0.0}] * 2


def test_a_state_that_was_not_backed_up_has_drifted() -> None:
    with testing.run(counting(af.Approximate(theta=400)), WORDS) as query:
        query.batch(ITEMS)
        assert max(worker["drift"]["seen"] for worker in query.batch(ITEMS)["workers"]) == 2.0


def test_what_a_loss_without_backups_can_have_taken_is_infinite() -> None:
    with testing.run(counting(af.Nothing()), WORDS) as query:
        query.batch(ITEMS)
        query.kill_worker("seen", 0, "between", lose_state=True)
        query.batch(ITEMS)
        (entry,) = query.ledger()
        assert entry["covered"] is False and entry["taken"] == {"seen": math.inf}


@pytest.mark.parametrize("before", [MiniBatch(), Approximate(400.0), Nothing()], ids=lambda one: one.name)
def test_only_losses_that_can_have_taken_something_lower_a_threshold(make_rig: MakeRig, before: af.Tolerance) -> None:
    """A loss under an exact policy uses up nothing of the budget that a later start is given."""
    rig, _ = make_rig(batches=6, tolerance=before)
    rig.go(2)
    rig.lose(0)
    rig.go(1)
    rig.start(tolerance=Approximate(400.0)).ready()
    group = rig.run_of().group
    (lost,), (kept,) = (group.budget.theta(member.counted_failures).values() for member in group.members)
    assert lost == (kept if before.exact else kept / 2)
    assert group.members[0].failures == 1
