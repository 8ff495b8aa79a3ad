"""Random schedules of queries that are started again with other tolerances, and get rows in another division: what is
told covers what is missing, and exact tolerances stay exact.

Mistakes that such schedules have found are planted once more in the real code, and found. Two that they notice too
rarely have tests of their own: windows that the last batch has opened, in ``tests/unit/runtime/test_gaps.py``, and
secondaries that are given another reading, in ``test_other_readings.py`` beside it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from afspark.coordinator import worker_group
from afspark.coordinator.recovery import gaps
from afspark.coordinator.stage_runner import StageRunner
from tests.simulation.restarted import RedividedSimulation, RestartedSimulation
from tests.simulation.simulation import Broken, simulate

MAKES = (RestartedSimulation, RedividedSimulation)
#: Seeds from one number to another; `make test` runs the first part.
PARTS = [range(40), *(range(first, first + 200) for first in range(40, 640, 200))]
#: How many schedules may pass before a mistake is found.
MOST = 400


@pytest.mark.parametrize(
    "seeds", [part if not part.start else pytest.param(part, marks=pytest.mark.thorough) for part in PARTS], ids=str
)
@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.options[0].removeprefix("--"))
def test_promises_hold_whatever_the_next_driver_has(make: type[RestartedSimulation], seeds: range) -> None:
    outcomes = [simulate(seed, make=make) for seed in seeds]
    seen, count = sum((outcome.seen for outcome in outcomes), Counter()), len(seeds)
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > count
    assert sum(outcome.drivers for outcome in outcomes) > 2 * count
    assert seen["promoted"] > count / 20
    assert seen["host killed"] > count / 4


def what_backups_lack_forgotten_where_there_is_no_gap(patch: pytest.MonkeyPatch) -> None:
    """Where nothing came since a checkpoint, what that was allowed to leave out is lost in silence."""
    real = gaps.without_replay

    def without_replay(*given: Any) -> Any:
        found = real(*given)
        return found if found.gap_batches else replace(found, incarnation=None)

    patch.setattr(worker_group, "without_replay", without_replay)


def two_readings_of_a_replayed_batch(patch: pytest.MonkeyPatch) -> None:
    """A worker that is lost replays a batch by itself, whatever division of its rows the others had."""
    patch.setattr(StageRunner, "_is_one_reading", lambda *_: True)


MISTAKES = {
    what_backups_lack_forgotten_where_there_is_no_gap: RestartedSimulation,
    two_readings_of_a_replayed_batch: RedividedSimulation,
}


@pytest.mark.some(1)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_planted_mistake_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        seed = next((seed for seed in range(MOST) if is_broken(seed, MISTAKES[plant])), None)
    assert seed is not None, f"{MOST} schedules did not notice: {plant.__doc__}"
    simulate(seed, make=MISTAKES[plant])


def is_broken(seed: int, make: type[RestartedSimulation]) -> bool:
    try:
        simulate(seed, make=make)
    except Broken:
        return True
    return False
