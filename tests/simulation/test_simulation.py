"""Ten thousand random schedules: 46 combinations of primitive, divergence and window, 218 schedules each (10,028).

Sets and divergences that count keys cannot decay. A schedule runs the real engine, worker, states, policies and
store code; `tests/simulation/cluster.py` lists what stands in for Spark. A failing seed is printed with the command
that replays it alone.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from afspark.store.conformance import CHECKS
from tests.simulation.schedule import Combination, combinations, seeds
from tests.simulation.simulation import simulate
from tests.simulation.storage import MemoryStore

EACH = 218


@pytest.fixture(autouse=True, scope="module")
def _uncollected() -> Iterator[None]:
    """A fifth of the time is spent looking for garbage that there is little of."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("combination", combinations(), ids=str)
def test_promises_hold_under_any_schedule(combination: Combination) -> None:
    outcomes = [simulate(seed) for seed in seeds(combination, EACH)]
    gc.collect()
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > EACH / 2
    assert sum(outcome.drivers for outcome in outcomes) > EACH
    assert max(outcome.worst for outcome in outcomes) > 0


def test_there_are_ten_thousand() -> None:
    assert EACH * len(combinations()) >= 10_000


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
