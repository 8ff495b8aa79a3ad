"""The simulator finds mistakes: each is planted in the real code, and a bounded number of schedules must notice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator import told_bounds as assurance
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery import discovery
from afspark.coordinator.recovery.discovery import restore_workers
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.recoveries import Recoveries
from afspark.model.states import HashTable
from afspark.model.states.cells import CellState
from afspark.protocol import lifecycle
from afspark.protocol.lifecycle import Action, Hint, Position
from afspark.store import LedgerEntry
from afspark.task import backup_numbers, restore, worker
from afspark.task.pane_states import PaneStates
from tests.simulation.planted import likely_first
from tests.simulation.simulation import Broken, simulate

#: How many schedules may pass before a mistake is found.
MOST = 400

Plant = Callable[[pytest.MonkeyPatch], None]


def backup_counted_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """Shadows move when pairs are issued, and a failed write is taken for a success."""
    real = CellState.issue

    def issue(self: CellState, theta: float, *, everything: bool = False) -> Any:
        pairs = real(self, theta, everything=everything)
        if pairs is not None and self.name.startswith("state"):
            self._shadows[: self.size] = self._values[: self.size]
        return pairs

    patch.setattr(CellState, "issue", issue)


def threshold_not_halved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ErrorBudget, "_counted", lambda self, counted_failures, pane: 0)


def replayed_batch_applied_twice(patch: pytest.MonkeyPatch) -> None:
    """A retried task that finds its batch applied applies it again."""
    real = worker._Task._carry_out

    def carry_out(self: Any, action: Action, home: Any, panes: PaneStates) -> Any:
        if action is Action.ALREADY_APPLIED and self.request.apply:
            home.version = self.request.batch - 1
            action = Action.APPLY
        return real(self, action, home, panes)

    patch.setattr(worker._Task, "_carry_out", carry_out)


def zombies_backup_accepted(patch: pytest.MonkeyPatch) -> None:
    """Backups are named by worker and batch alone, so that a late one replaces what a record names."""
    patch.setattr(
        backup_numbers,
        "object_name",
        lambda epoch, operator, number, incarnation, batch, *token: f"objects/{operator}/{number:05d}-{batch:012d}",
    )


def half_applied_batch_kept(patch: pytest.MonkeyPatch) -> None:
    """A batch that was interrupted is applied on top of its own half."""
    patch.setitem(lifecycle.TRANSITIONS, (Position.HALFWAY, Hint.RESUME), Action.ROLL_BACK_THEN_APPLY)
    patch.setattr(PaneStates, "rollback", lambda self: None)


def chain_forgotten_by_a_new_driver(patch: pytest.MonkeyPatch) -> None:
    """A restarted driver recovers from nothing."""
    real = restore_workers

    def forgetful(**given: Any) -> Any:
        members, undeclared = real(**given)
        return [replace(member, chain=(), previous=()) for member in members], undeclared

    patch.setattr("afspark.coordinator.worker_group.restore_workers", forgetful)


def damage_not_told(patch: pytest.MonkeyPatch) -> None:
    """Damaged backups are passed over in silence."""
    real = restore.load_chain
    patch.setattr(restore, "load_chain", lambda *given: replace(real(*given), damaged=()))


def thresholds_of_one_worker_for_shares_that_overlap(patch: pytest.MonkeyPatch) -> None:
    """Tables are taken for disjoint, whatever their keys are."""
    patch.setattr(HashTable, "disjoint", property(lambda self: True))


def lowered_threshold_told_of_older_backups(patch: pytest.MonkeyPatch) -> None:
    """A loss is told by the θ of today, though its backup was made under yesterday's."""
    real = ErrorBudget.count_failure
    patch.setattr(
        ErrorBudget,
        "count_failure",
        lambda self, counted_failures, batch_time, trace, older=None: real(self, counted_failures, batch_time, trace),
    )


def damage_leaves_the_bound_as_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assurance, "uncovered", lambda run, window=None: [])


def losses_without_backups_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What was lost under `Nothing` is told under `Nothing` alone."""
    real = assurance.uncovered

    def forgetful(run: OperatorRun, window: int | None = None) -> list[LedgerEntry]:
        found, forgets = real(run, window), run.group.budget.tolerance.needs_records
        return [entry for entry in found if not forgets or (entry.recovery and not entry.recovery.covered)]

    patch.setattr(assurance, "uncovered", forgetful)


def second_loss_not_declared(patch: pytest.MonkeyPatch) -> None:
    """A worker whose state and records are gone is declared lost only if it was never lost before."""
    patch.setattr(
        discovery, "_told_before", lambda budget, recorded, losses: math.inf if losses or recorded >= 0 else 0
    )


def repeated_recovery_not_told(patch: pytest.MonkeyPatch) -> None:
    """A loss that was made good once is not told again, although its worker is restored from less the second time."""
    real = Recoveries.take_up

    def take_up(self: Recoveries, members: Any, damaged: Any) -> None:
        real(self, members, damaged)
        whole = {entry.loss.sequence for entry in self.ledger.entries() if entry.recovery is not None}
        self._under_way = {worker: loss for worker, loss in self._under_way.items() if loss.sequence not in whole}

    patch.setattr(Recoveries, "take_up", take_up)


MISTAKES = [
    backup_counted_before_it_is_durable,
    threshold_not_halved,
    replayed_batch_applied_twice,
    zombies_backup_accepted,
    half_applied_batch_kept,
    chain_forgotten_by_a_new_driver,
    pytest.param(damage_not_told, marks=pytest.mark.thorough),
    thresholds_of_one_worker_for_shares_that_overlap,
    lowered_threshold_told_of_older_backups,
    damage_leaves_the_bound_as_it_was,
    losses_without_backups_forgotten,
    pytest.param(second_loss_not_declared, marks=pytest.mark.thorough),
    repeated_recovery_not_told,
]


def found_by(seeds: Iterator[int]) -> int | None:
    """The first seed that breaks a promise."""
    for seed in seeds:
        try:
            simulate(seed)
        except Broken:
            return seed
    return None


def test_a_failing_seed_tells_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed_batch_applied_twice(monkeypatch)
    seed = found_by(iter(range(MOST)))
    assert seed is not None
    with pytest.raises(Broken, match=f"python -m tests.simulation --seed {seed} -v"):
        simulate(seed)


@pytest.mark.some(5)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by(likely_first(plant, range(MOST)))
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__ or plant.__name__}"
    simulate(seed)
