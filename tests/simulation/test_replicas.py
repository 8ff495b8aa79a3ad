"""Random schedules of queries whose workers have secondaries: nothing is lost or doubled, whoever dies when.

Mistakes in the promotion of secondaries are planted in the real code, and found.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator.replicas.secondary import Secondary
from afspark.coordinator.replicas.secondary_group import SecondaryGroup
from afspark.coordinator.worker_state import WorkerState
from afspark.task import shipping, worker
from tests.simulation.memory import MemorySegment
from tests.simulation.replicated import ReplicatedSimulation
from tests.simulation.simulation import Broken, simulate

EACH, PARTS, SUITE = 100, 20, 3
MOST = 600


@pytest.mark.parametrize(
    "part", [part if part < SUITE else pytest.param(part, marks=pytest.mark.thorough) for part in range(PARTS)]
)
def test_promises_hold_under_any_schedule(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    promoted = []
    real = WorkerState.promoted

    def noting(self: WorkerState, *queued: Any) -> WorkerState:
        promoted.append(self.worker)
        return real(self, *queued)

    monkeypatch.setattr(WorkerState, "promoted", noting)
    outcomes = [simulate(seed, make=ReplicatedSimulation) for seed in range(part * EACH, (part + 1) * EACH)]
    assert sum(outcome.losses for outcome in outcomes) > EACH
    # Two of the six schemes have nobody to promote.
    assert len(promoted) > EACH / 10


def one_that_lacks_a_batch_promoted_as_if_it_had_it(patch: pytest.MonkeyPatch) -> None:
    """What a secondary lacks is not replayed."""
    real = SecondaryGroup.replacement

    def replacement(self: SecondaryGroup, member: WorkerState, *found: Any) -> Secondary | None:
        one = real(self, member, *found)
        return one and replace(one, version=member.version)

    patch.setattr(SecondaryGroup, "replacement", replacement)


def damaged_one_promoted(patch: pytest.MonkeyPatch) -> None:
    """A secondary that was built from backups which could not be read is promoted, and its task does not look."""
    real = worker.noted_damage
    patch.setattr(worker, "noted_damage", lambda storage, batch=None: () if batch is None else real(storage, batch))
    patch.setattr(
        Secondary, "can_replace", lambda self, member, covered: self.is_built and self.can_follow(member, covered)
    )


def backups_of_the_lost_primary_built_on(patch: pytest.MonkeyPatch) -> None:
    """A promoted secondary writes what has changed since the last backup of the primary before it."""
    real = WorkerState.promoted
    patch.setattr(
        WorkerState, "promoted", lambda self, *queued: replace(real(self, *queued), restart_chain=self.restart_chain)
    )


def one_that_is_promoted_stays_a_secondary(patch: pytest.MonkeyPatch) -> None:
    """A promoted segment is still taken for a secondary."""

    def promote(self: MemorySegment, incarnation: int) -> None:
        self.incarnation = incarnation

    patch.setattr(MemorySegment, "promote", promote)


def sleeping_one_given_less_than_a_checkpoint_holds(patch: pytest.MonkeyPatch) -> None:
    """A secondary forgets a part of what has changed, and is at the batch of the checkpoint all the same."""
    real = shipping.unseal

    def unsealed(data: bytes) -> Any:
        found = real(data)
        return replace(found, images={label: image.slice(1) for label, image in found.images.items()})

    patch.setattr(shipping, "unseal", unsealed)


MISTAKES = [
    sleeping_one_given_less_than_a_checkpoint_holds,
    one_that_lacks_a_batch_promoted_as_if_it_had_it,
    damaged_one_promoted,
    backups_of_the_lost_primary_built_on,
    one_that_is_promoted_stays_a_secondary,
]
#: Seeds that noticed a mistake when schedules were drawn as they are now.
NOTICED = {
    "damaged_one_promoted": 1560,
    "backups_of_the_lost_primary_built_on": 8120,
    "sleeping_one_given_less_than_a_checkpoint_holds": 18,
    "one_that_lacks_a_batch_promoted_as_if_it_had_it": 23,
}


@pytest.mark.some(2)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = found_by([*filter(None, [NOTICED.get(plant.__name__)]), *range(MOST)])
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__}"
    simulate(seed, make=ReplicatedSimulation)


def found_by(seeds: list[int]) -> int | None:
    for seed in seeds:
        try:
            simulate(seed, make=ReplicatedSimulation)
        except Broken:
            return seed
    return None
