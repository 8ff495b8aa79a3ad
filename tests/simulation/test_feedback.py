"""Feedback under random schedules of failures: applied once, lost within l, the same for all who meet it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator import stage_runner
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import WorkerState
from afspark.protocol.parcels import Packet
from afspark.task import restore
from tests.simulation.feedback import Feedback
from tests.simulation.planted import likely_first
from tests.simulation.simulation import Broken, simulate

EACH = 25
#: How many schedules may pass before a mistake is found.
MOST = 400

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(part * EACH, marks=pytest.mark.thorough) for part in range(1, 16))]
)
def test_promises_hold_under_any_schedule(first: int) -> None:
    outcomes = [simulate(seed, Feedback) for seed in range(first, first + EACH)]
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > EACH
    assert sum(outcome.drivers for outcome in outcomes) > EACH
    assert max(outcome.worst for outcome in outcomes) > 0


def backups_of_feedback_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(restore, "waiting_feedback", lambda images, batch: {})


def feedback_of_earlier_batches_restored_too(patch: pytest.MonkeyPatch) -> None:
    """Everything in the chain is taken for feedback that still waits."""
    real = restore.waiting_feedback

    def waiting(images: Mapping[str, Sequence[Any]], batch: int) -> dict[str, list[Packet]]:
        found: dict[str, list[Packet]] = {}
        for sender in range(batch + 1):
            for port, packets in real(images, sender).items():
                found.setdefault(port, []).extend(packets)
        return found

    patch.setattr(restore, "waiting_feedback", waiting)


def items_not_halved(patch: pytest.MonkeyPatch) -> None:
    real = ErrorBudget.items
    patch.setattr(ErrorBudget, "items", lambda self, counted_failures: real(self, ()))


def feedback_never_backed_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ErrorBudget, "items", lambda self, counted_failures: math.inf)


def waiting_items_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The ledger does not tell that items went with a worker."""
    real = WorkerState.applied
    patch.setattr(WorkerState, "applied", lambda self, *given: replace(real(self, *given), waiting=0))


def digests_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Feedback that is lost between two tasks of a stage reaches some workers and not others."""
    patch.setattr(stage_runner, "digests_agree", lambda reports, produced: True)


MISTAKES: list[Plant] = [
    backups_of_feedback_not_read,
    feedback_of_earlier_batches_restored_too,
    items_not_halved,
    feedback_never_backed_up,
    waiting_items_forgotten,
    digests_not_compared,
]


def found_by(seeds: Iterable[int]) -> Broken | None:
    for seed in seeds:
        try:
            simulate(seed, Feedback)
        except Broken as broken:
            return broken
    return None


@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        broken = found_by(likely_first(plant, range(MOST)))
    assert broken is not None, f"{MOST} schedules did not notice: {plant.__doc__ or plant.__name__}"
    assert f"python -m tests.simulation --feedback --seed {broken.seed} -v" in str(broken)
    simulate(broken.seed, Feedback)
