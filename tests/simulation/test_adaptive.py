"""Random schedules of queries whose schemes the controller chooses: exact, whatever it chooses and whoever dies.

Mistakes in what it has carried out are planted in the real code, and found.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from afspark.control import Decision
from afspark.coordinator import worker_group
from afspark.coordinator.adapting import control_loop
from afspark.coordinator.adapting.control_loop import ControlLoop
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.policies.adaptive import ChosenApproximation
from tests.simulation.adaptive import AdaptiveSimulation
from tests.simulation.simulation import Broken, simulate

#: Seeds from one number to another; `make test` runs the first part.
PARTS = [range(30), *(range(first, first + 100) for first in range(30, 530, 100))]
#: How many schedules may pass before a mistake is found.
MOST = 100


@pytest.mark.parametrize(
    "seeds", [part if not part.start else pytest.param(part, marks=pytest.mark.thorough) for part in PARTS], ids=str
)
def test_promises_hold_whatever_the_controller_chooses(seeds: range) -> None:
    outcomes = [simulate(seed, make=AdaptiveSimulation) for seed in seeds]
    seen, count = sum((outcome.seen for outcome in outcomes), Counter()), len(seeds)
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > count
    assert sum(outcome.drivers for outcome in outcomes) > count
    assert seen["scheme changed by the controller"] > count / 2
    assert seen["decision taken up by another driver"] > count / 2
    assert seen["promoted"] > count / 10
    assert seen["host killed"] > count / 4
    assert seen["two hosts at once"] > 0
    assert seen["stopped task woken"] > 0
    assert sum(name.startswith("chosen: ") for name in seen) >= 3


def test_a_seed_gives_the_same_decisions() -> None:
    first, second = (simulate(3, make=AdaptiveSimulation) for _ in range(2))
    assert first.seen == second.seen
    assert len(first.trace) == len(second.trace)


def decisions_forgotten_by_drivers(patch: pytest.MonkeyPatch) -> None:
    """A started driver shows what was decided before it, and does not carry it out."""
    real = ControlLoop.open

    def open_(self: ControlLoop, runs: Any, epoch: str) -> None:
        with patch.context() as meanwhile:
            meanwhile.setattr(OperatorRun, "protect", lambda *_: None)
            real(self, runs, epoch)

    patch.setattr(ControlLoop, "open", open_)


def decision_shown_before_it_is_made(patch: pytest.MonkeyPatch) -> None:
    """What was decided is noted, and another interval is carried out."""
    real = OperatorRun.protect
    patch.setattr(
        OperatorRun,
        "protect",
        lambda self, worker, protection, interval: real(self, worker, protection, interval and interval * 2),
    )


def reason_lost_over_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Decisions of an earlier driver are shown without their reasons."""
    real = control_loop.decisions_of

    def decisions_of(found: Any) -> list[Decision]:
        return [replace(one, reason="") for one in real(found)]

    patch.setattr(control_loop, "decisions_of", decisions_of)


def gap_told_without_its_last_batch(patch: pytest.MonkeyPatch) -> None:
    """Less is told than a worker lacks."""
    real = worker_group.without_replay

    def without_replay(*given: Any) -> DurableState:
        found = real(*given)
        return replace(found, gap_batches=max(0, found.gap_batches - 1))

    patch.setattr(worker_group, "without_replay", without_replay)


def gap_that_no_bound_tells(patch: pytest.MonkeyPatch) -> None:
    """What is left out counts as if it had been backed up."""
    real = worker_group.without_replay

    def without_replay(member: WorkerState, state: DurableState, *given: Any) -> DurableState:
        return replace(real(member, state, *given), older_theta=state.older_theta)

    patch.setattr(worker_group, "without_replay", without_replay)


def every_failure_may_take_all_of_theta(patch: pytest.MonkeyPatch) -> None:
    """Where approximation was chosen, the threshold is neither divided nor halved."""
    patch.setattr(ChosenApproximation, "allowance", lambda self, **_: self.theta)


def loss_counted_with_the_thresholds_of_a_scheme_too_early(patch: pytest.MonkeyPatch) -> None:
    """A scheme follows an approximation, and nobody remembers what the newest record was written under."""
    patch.setattr(WorkerState, "with_limits", lambda self, before, now: self)


MISTAKES = [
    decisions_forgotten_by_drivers,
    decision_shown_before_it_is_made,
    reason_lost_over_a_restart,
    gap_told_without_its_last_batch,
    gap_that_no_bound_tells,
    every_failure_may_take_all_of_theta,
    loss_counted_with_the_thresholds_of_a_scheme_too_early,
]


@pytest.mark.some(1)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = next((seed for seed in range(MOST) if _is_broken(seed)), None)
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__}"
    simulate(seed, make=AdaptiveSimulation)


def _is_broken(seed: int) -> bool:
    try:
        simulate(seed, make=AdaptiveSimulation)
    except Broken:
        return True
    return False
