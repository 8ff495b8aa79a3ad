"""Random schedules of pushed streams: what is told after every batch covers what was lost and is
within the promise, and every stream comes to its end.

Of the 10,000 schedules `make test` runs 6,500, `make thorough` all, and `make soak` a hundred thousand. They draw
Θ, L and Γ from 0 to more than there is, windows of every kind, keys of the operator or of something else, one or
several lanes, with or without a relay; and what goes wrong: see `TROUBLES`. A failing seed is printed with as few
events as break the promise, and with the command that replays them.
"""

from __future__ import annotations

import pytest

from tests.simulation.pushed.running import attempt, simulate
from tests.simulation.pushed.schedule import HUNTED, TROUBLES, draw
from tests.simulation.simulation import Outcome

EACH, SUITE, ALL = 250, 26, 40


@pytest.mark.parametrize(
    "part", [part if part < SUITE else pytest.param(part, marks=pytest.mark.thorough) for part in range(ALL)]
)
def test_promises_hold_under_any_schedule(part: int) -> None:
    outcomes = [simulate(seed) for seed in range(part * EACH, (part + 1) * EACH)]
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > EACH / 4
    assert sum(outcome.drivers for outcome in outcomes) > EACH
    assert max(outcome.worst for outcome in outcomes) > 0


def test_schedules_draw_everything() -> None:
    drawn = [draw(seed) for seed in range(2 * EACH)]
    assert {trouble for one in drawn for trouble in one.troubles} == set(TROUBLES)
    assert {one.hunted for one in drawn} == {None, *HUNTED}
    assert {type(one.window).__name__ for one in drawn} == {"NoneType", "Hopping", "Sliding", "Decaying"}
    assert {type(one.tolerance).__name__ for one in drawn} == {"Approximate", "MiniBatch", "UpstreamBackup", "Nothing"}


@pytest.mark.parametrize("seed", [3, 50, 101])
def test_a_seed_replays_event_by_event(seed: int) -> None:
    first, again = attempt(seed), attempt(seed)
    assert isinstance(first, Outcome) and isinstance(again, Outcome)
    assert _told(first) == _told(again)


def _told(outcome: Outcome) -> list[str]:
    """The steps, without the random parts of object names."""
    return [step.split("objects/")[0].split("epochs/")[0].split("source/")[0] for step in outcome.trace]
