"""Random graphs under random schedules of failures, and mistakes that they must find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from afspark.coordinator.committer import Committer
from afspark.coordinator.recovery.replay import Replay
from afspark.numbers import Batch
from tests.simulation import test_planted_in_replay as in_replay
from tests.simulation.graphs import Graphs
from tests.simulation.planted import likely_first
from tests.simulation.replicated_graphs import ReplicatedGraphs
from tests.simulation.simulation import Broken, simulate
from tests.simulation.test_feedback import backups_of_feedback_not_read

EACH = 12
#: How many schedules may pass before a mistake is found.
MOST = 80

Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(part * EACH, marks=pytest.mark.thorough) for part in range(1, 24))]
)
def test_promises_hold_in_any_graph(first: int) -> None:
    outcomes = [simulate(seed, Graphs) for seed in range(first, first + EACH)]
    # Schedules in which nothing happens prove nothing.
    assert sum(outcome.losses for outcome in outcomes) > EACH
    assert sum(outcome.drivers for outcome in outcomes) > EACH


#: Seeds from one number to another; `make test` runs the first part.
REPLICATED = [range(12), *(range(first, first + 100) for first in range(12, 412, 100))]


@pytest.mark.parametrize(
    "seeds",
    [part if not part.start else pytest.param(part, marks=pytest.mark.thorough) for part in REPLICATED],
    ids=str,
)
def test_promises_hold_where_some_have_secondaries(seeds: range) -> None:
    outcomes = [simulate(seed, ReplicatedGraphs) for seed in seeds]
    seen, count = sum((outcome.seen for outcome in outcomes), Counter()), len(seeds)
    assert sum(outcome.losses for outcome in outcomes) > count
    assert seen["host killed"] > count / 4
    assert seen["decision taken up by another driver"] > 0
    if seeds.start:
        assert seen["promoted"] > count / 20
        assert seen["scheme changed by the controller"] > count / 20


def everybody_goes_back(patch: pytest.MonkeyPatch) -> None:
    """Partial recovery is full recovery."""
    real = Committer.begin

    def begin(self: Committer, batch: Batch, items: int, *, must: bool) -> None:
        self._stages.takes_all_back = True
        real(self, batch, items, must=must)

    patch.setattr(Committer, "begin", begin)


def input_released_too_early(patch: pytest.MonkeyPatch) -> None:
    """What belonged to a batch is forgotten one batch before a record covers it."""
    real = Replay.forget
    patch.setattr(Replay, "forget", lambda self, covered: real(self, Batch(covered + 1)))


MISTAKES: list[Plant] = [
    in_replay.record_before_its_backups,
    backups_of_feedback_not_read,
    in_replay.replayed_twice,
    in_replay.forgotten_before_it_is_durable,
    in_replay.swept_too_early,
    input_released_too_early,
    everybody_goes_back,
]


def found_by(seeds: Iterable[int]) -> Broken | None:
    for seed in seeds:
        try:
            simulate(seed, Graphs)
        except Broken as broken:
            return broken
    return None


@pytest.mark.some(3)
@pytest.mark.parametrize("plant", MISTAKES, ids=lambda plant: plant.__name__)
def test_a_mistake_is_found_in_graphs(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        broken = found_by(likely_first(plant, range(MOST)))
    assert broken is not None, f"{MOST} schedules did not notice: {plant.__doc__ or plant.__name__}"
    assert f"python -m tests.simulation --graphs --seed {broken.seed} -v" in str(broken)
    simulate(broken.seed, Graphs)
