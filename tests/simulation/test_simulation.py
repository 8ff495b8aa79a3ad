"""Ten thousand random schedules: 46 combinations of primitive, divergence and window, 218 schedules each (10,028).

`make test` runs the first 8 of each (368), `make thorough` all.

Sets and divergences that count keys cannot decay. A schedule runs the real engine, worker, states, policies and
store code; `tests/simulation/cluster.py` lists what stands in for Spark. A failing seed is printed with the command
that replays it alone.
"""

from __future__ import annotations

import pytest

from afspark.store.store_conformance import CHECKS
from tests.simulation.schedule import Combination, combinations, seeds
from tests.simulation.simulation import simulate
from tests.simulation.storage import MemoryStore

#: Of the schedules of a combination, where a part starts and how many it has.
FIRST, REST = (0, 8), (8, 210)


@pytest.mark.parametrize("combination", combinations(), ids=str)
@pytest.mark.parametrize(
    "part", [pytest.param(FIRST, id="first"), pytest.param(REST, id="rest", marks=pytest.mark.thorough)]
)
def test_promises_hold_under_any_schedule(combination: Combination, part: tuple[int, int]) -> None:
    start, count = part
    outcomes = [simulate(seed) for seed in seeds(combination, count, start)]
    # Schedules in which nothing happens prove nothing; a few may all have been spared an error.
    assert sum(outcome.losses for outcome in outcomes) > count / 4
    assert sum(outcome.drivers for outcome in outcomes) >= count
    assert part == FIRST or max(outcome.worst for outcome in outcomes) > 0


def test_there_are_ten_thousand() -> None:
    assert REST[0] == FIRST[1] and (FIRST[1] + REST[1]) * len(combinations()) >= 10_000


@pytest.mark.parametrize("seed", [3, 50, 101])
def test_a_seed_replays_step_by_step(seed: int) -> None:
    assert _steps(seed) == _steps(seed)


def _steps(seed: int) -> list[str]:
    """The steps, without the random parts of object names."""
    return [step.split("objects/")[0].split("/epochs/")[0].split("ledger/")[0] for step in simulate(seed).trace]


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if "pickl" not in check.__name__], ids=lambda c: c.__name__
)
def test_the_store_on_the_heap_is_a_store(check: object) -> None:
    assert callable(check)
    check(MemoryStore())
