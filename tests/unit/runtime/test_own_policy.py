"""A policy that knows no θ: it comes with a plan of its own, and with how a task carries that out.

Nothing else in the engine hears of it. Tasks find the registration because the plan's class is imported with it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from afspark.model.state_label import StateLabel
from afspark.model.states import HeapColumns, Numeric
from afspark.policies import BackupNeed, BackupPlan, NoBackup, ThresholdBackup, Tolerance
from afspark.protocol.fault_plan import FaultPhase, FaultPlan, InjectedFailure
from afspark.task.backup import BackedUp, Moment, choose_images
from afspark.task.pane_states import PaneStates
from tests.unit.runtime.conftest import MakeRig

pytestmark = pytest.mark.some(3)

FILES_PER_BATCH = 4


@dataclass(frozen=True, kw_only=True)
class WholeImage(BackupPlan):
    """All of every state is written."""

    kind: ClassVar[str] = "whole image"


@choose_images.register
def _write_all(plan: WholeImage, at: Moment) -> BackedUp:
    images = {}
    for name, pane, state in at.panes.named():
        state.update_drift()
        state.issue(0.0, everything=True)
        images[StateLabel(name, pane)] = state.dump()
    return BackedUp(images, full=True)


@dataclass(frozen=True)
class EveryFew(Tolerance):
    """Every ``batches``-th batch is backed up as a whole, and nothing in between."""

    batches: int = 3

    name: ClassVar[str] = "every few"
    reason: ClassVar[str] = "the whole state is backed up every few batches"

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        return self._now(need) if need.batch % self.batches == 0 else NoBackup()

    def _now(self, need: BackupNeed) -> BackupPlan:
        return WholeImage()


@dataclass(frozen=True)
class EveryFewByPairs(EveryFew):
    """The same by a kind of plan that there is already: every cell that has changed since the last backup."""

    name: ClassVar[str] = "every few by pairs"

    def _now(self, need: BackupNeed) -> BackupPlan:
        return ThresholdBackup(theta=dict.fromkeys(need.theta, 0.0), recheck=True)


def of_batch(batch: int) -> set[str]:
    """The words that only the files of one batch have."""
    return {f"file{number}" for number in range(batch * FILES_PER_BATCH, (batch + 1) * FILES_PER_BATCH)}


def own_words(counts: Counter[str]) -> Counter[str]:
    return Counter({word: count for word, count in counts.items() if word.startswith("file") and count})


@pytest.mark.parametrize("tolerance", [EveryFew(), EveryFewByPairs()], ids=lambda tolerance: tolerance.name)
@pytest.mark.parametrize("keyed", [False, True])
def test_a_policy_of_ones_own_is_carried_out_and_recovered(make_rig: MakeRig, tolerance: EveryFew, keyed: bool) -> None:
    lost_after = InjectedFailure(5, FaultPhase.BETWEEN)
    rig, truth = make_rig(tolerance=tolerance, keyed=keyed, faults=FaultPlan(frozenset({lost_after}), "test"))
    rig.go()
    # Backups were made in batches 0 and 3, so that batch 4 went with the workers before batch 5.
    assert own_words(rig.counts()) == Counter(
        {word: count for word, count in own_words(truth).items() if word not in of_batch(4)}
    )
    assert [(entry.loss.worker, entry.loss.batch, entry.loss.counted) for entry in rig.ledger] == [
        (0, 5, True),
        (1, 5, True),
    ]
    assert all(entry.recovery is not None and entry.recovery.covered for entry in rig.ledger)
    assert rig.bound() == math.inf, "nothing was promised"


@pytest.mark.parametrize("restarts", [False, True], ids=["one driver", "a new driver"])
def test_what_it_backed_up_last_is_what_comes_back(make_rig: MakeRig, restarts: bool) -> None:
    rig, truth = make_rig(tolerance=EveryFew(2))
    rig.go(3)
    before = own_words(rig.counts())
    assert before == Counter({word: own_words(truth)[word] for batch in range(3) for word in of_batch(batch)})
    if restarts:
        rig.engine = None
    rig.lose()
    rig.go(1)
    assert own_words(rig.counts()) - before == Counter({word: own_words(truth)[word] for word in of_batch(3)})
    assert not before - own_words(rig.counts()), "batch 2 was backed up as a whole"


def test_a_plan_that_writes_nothing_new_keeps_what_is_durable_when_a_chain_restarts() -> None:
    columns = HeapColumns()
    panes = PaneStates(columns, {"n": Numeric()}, paned=False)

    def batch(amount: int, plan: BackupPlan, **at: Any) -> BackedUp:
        panes.begin()
        panes.of(None)["n"].add(amount)  # type: ignore[attr-defined]
        return choose_images(plan, Moment(panes=panes, **at))

    whole = batch(3, WholeImage())
    assert batch(4, NoBackup()) == BackedUp({})
    again = batch(5, NoBackup(), damaged=True)
    assert again.full and again.images[StateLabel("n")].equals(whole.images[StateLabel("n")])


def test_without_failures_it_is_exact(make_rig: MakeRig) -> None:
    rig, truth = make_rig(tolerance=EveryFew())
    rig.go()
    assert rig.counts() == truth and rig.bound() == 0
    assert len(rig.objects(0)) == len(rig.objects(1)) == 2
