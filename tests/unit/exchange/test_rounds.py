"""Rounds against a plain model of what each consistency promises, in random orders of what workers do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from afspark.exchange.rounds import Push, Pushed, Rounds
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.training import Cells, StepFacts

SIZE = 12


def learned(worker: int, step: int, model: np.ndarray) -> Push:
    """What a deterministic worker learns in a step: it depends on the model, like a gradient."""
    chosen = random.Random(f"{worker} {step}")
    index = np.array(sorted(chosen.sample(range(SIZE), 4)), np.uint32)
    values = 0.1 * (worker + 1) - 0.5 * model[index] + 0.01 * step
    facts = StepFacts(items=1 + (worker + step) % 3)
    return Push(
        worker=worker, step=step, facts=facts, cells=Cells(index, values), digest=f"{index}{values.tobytes()!r}{facts}"
    )


class Worker:
    """One that may be killed between any two calls, and then begins with its first step."""

    def __init__(self, number: int, steps: int, rounds: Rounds) -> None:
        self.number, self.steps, self.rounds = number, steps, rounds
        self.start()

    def start(self) -> None:
        self.at, self.held, self.model, self.ended = -1, None, np.zeros(SIZE), False
        self.lags: list[int] = []

    def act(self) -> bool:
        """One call; False if it has to wait."""
        rounds = self.rounds
        if self.at < 0:
            rounds.check_in(self.number)
            self.at = 0
            return True
        if self.at == self.steps:
            rounds.finish(self.number, self.steps)
            self.ended = True
            return True
        if not rounds.may_begin(self.number, self.at):
            assert rounds.waits_for(self.at)
            return False
        version = rounds.version_for(self.at)
        cells = rounds.versions.changes(self.held, version)
        self.model[cells.index] = cells.values
        self.held = version
        rounds.push(learned(self.number, self.at, self.model))
        self.at += 1
        return True


def run(seed: int, consistency: Consistency, steps: Sequence[int], *, kills: float = 0.0) -> Rounds:
    chance = random.Random(seed)
    first = np.linspace(0.0, 1.0, SIZE)
    rounds = Rounds(first, range(len(steps)), consistency, 3)
    workers = [Worker(number, count, rounds) for number, count in enumerate(steps)]
    idle = 0
    while not all(worker.ended for worker in workers):
        worker = chance.choice(workers)
        if chance.random() < kills:
            worker.start()
        elif not worker.ended:
            idle = 0 if worker.act() else idle + 1
            assert idle < 1000, "nobody can go on"
    assert rounds.is_over
    return rounds


def in_rounds(steps: Sequence[int]) -> np.ndarray:
    """The model of a plain loop over rounds."""
    model = np.linspace(0.0, 1.0, SIZE)
    for step in range(max(steps)):
        pushes = [learned(worker, step, model) for worker, count in enumerate(steps) if count > step]
        total = sum(push.facts.items for push in pushes)
        for push in pushes:
            model[push.cells.index] += push.facts.items / total * push.cells.values
    return model


@pytest.mark.parametrize("seed", range(60))
def test_in_rounds_the_model_is_bit_for_bit_that_of_a_plain_loop(seed: int) -> None:
    steps = random.Random(seed).choices(range(7), k=3)
    if not max(steps):
        steps[0] = 1
    for kills in (0.0, 0.2):
        found = run(seed, BSP(), steps, kills=kills)
        assert found.versions.model.tobytes() == in_rounds(steps).tobytes()
        assert found.versions.newest == max(steps)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("consistency", [SSP(0), SSP(2), ASP()], ids=str)
def test_nothing_is_merged_twice_or_left_out(seed: int, consistency: Consistency) -> None:
    steps = [5, 0, 3, 6]
    found = run(seed, consistency, steps, kills=0.2)
    assert found.versions.newest == sum(steps)
    assert sorted((push.worker, push.step) for pushes in found.merged for push in pushes) == [
        (worker, step) for worker, count in enumerate(steps) for step in range(count)
    ]
    model = np.linspace(0.0, 1.0, SIZE)
    for version in found.versions._log:
        model[version.cells.index] = version.cells.values
    np.testing.assert_array_equal(model, found.versions.model)


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_step_never_lacks_more_of_others_than_the_staleness(seed: int, staleness: int) -> None:
    chance = random.Random(seed)
    rounds = Rounds(np.zeros(SIZE), range(3), SSP(staleness), 3)
    workers = [Worker(number, 8, rounds) for number in range(3)]
    farthest = 0
    while not all(worker.ended for worker in workers):
        # The first is slow.
        worker = chance.choice(workers[1:] * 5 + workers[:1])
        if worker.ended:
            continue
        before = worker.at
        if worker.act() and 0 <= before < 8:
            others = [one.at for one in workers if one is not worker and not one.ended and one.at < 8]
            lag = max((before - max(at, 0) for at in others), default=0)
            assert lag <= staleness
            farthest = max(farthest, lag)
    assert farthest == staleness


def test_a_push_that_differs_from_the_first_of_its_step_is_told_and_left_out() -> None:
    rounds = Rounds(np.zeros(SIZE), [0], ASP(), 3)
    rounds.check_in(0)
    first = learned(0, 0, np.zeros(SIZE))
    assert rounds.push(first) is Pushed.TAKEN
    assert rounds.push(first) is Pushed.REPEATED
    model = rounds.versions.model.copy()
    assert rounds.push(learned(0, 0, np.ones(SIZE))) is Pushed.DIFFERS
    np.testing.assert_array_equal(rounds.versions.model, model)


def test_nobody_begins_before_all_are_there_and_who_is_waited_for_is_known() -> None:
    rounds = Rounds(np.zeros(SIZE), [0, 1], ASP(), 3)
    rounds.check_in(0)
    assert not rounds.may_begin(0, 0)
    assert rounds.waits_for(0) == [1]
    rounds.check_in(1)
    assert rounds.may_begin(0, 0)


def test_steps_that_are_left_out_are_refused() -> None:
    rounds = Rounds(np.zeros(SIZE), [0], BSP(), 3)
    with pytest.raises(ValueError, match="step 1 after 0"):
        rounds.push(learned(0, 1, np.zeros(SIZE)))
    with pytest.raises(ValueError, match="ends after 2"):
        rounds.finish(0, 2)
