"""Workers that train in rounds, in one thread and in any order, with kills; and what each consistency promises."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from afspark.exchange.rounds import Push, PushOutcome, Rounds
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.training import Cells, StepFacts

SIZE = 12
MOST_CALLS = 2000


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
        outcome = rounds.push(learned(self.number, self.at, self.model))
        # In rounds, whoever repeats a step gets the model that it had.
        assert outcome is not PushOutcome.DIFFERS or not rounds.consistency.in_rounds
        self.at += 1
        return True


def run(
    seed: int, consistency: Consistency, steps: Sequence[int], *, kills: float = 0.0, kind: type[Rounds] = Rounds
) -> Rounds:
    """Has workers act in a random order until all have ended."""
    chance = random.Random(seed)
    first = np.linspace(0.0, 1.0, SIZE)
    rounds = kind(first, range(len(steps)), consistency)
    workers = [Worker(number, count, rounds) for number, count in enumerate(steps)]
    calls = 0
    while not all(worker.ended for worker in workers):
        calls += 1
        assert calls < MOST_CALLS, "they come to no end"
        worker = chance.choice(workers)
        # Kills come to an end, so that everybody can.
        if calls < MOST_CALLS // 4 and chance.random() < kills:
            worker.start()
        elif not worker.ended:
            worker.act()
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


def check_rounds(seed: int, steps: Sequence[int], *, kills: float, kind: type[Rounds] = Rounds) -> None:
    """Rounds come to the model of a plain loop, bit for bit."""
    found = run(seed, BSP(), steps, kills=kills, kind=kind)
    assert found.versions.model.tobytes() == in_rounds(steps).tobytes()
    assert found.versions.newest == max(steps)


def check_merges(seed: int, consistency: Consistency, steps: Sequence[int], *, kind: type[Rounds] = Rounds) -> None:
    """Every step of everybody is merged once, and the log of versions leads to the model."""
    found = run(seed, consistency, steps, kills=0.2, kind=kind)
    assert found.versions.newest == sum(steps)
    assert sorted((push.worker, push.step) for pushes in found.merged for push in pushes) == [
        (worker, step) for worker, count in enumerate(steps) for step in range(count)
    ]
    model = np.linspace(0.0, 1.0, SIZE)
    for version in range(found.versions.newest):
        cells = found.versions.changes(version, version + 1)
        model[cells.index] = cells.values
    np.testing.assert_array_equal(model, found.versions.model)


def check_weights(seed: int, consistency: Consistency, steps: Sequence[int], *, kind: type[Rounds] = Rounds) -> None:
    """What is merged as it arrives counts 1/k, if k workers have not come to their end before that step."""
    chance = random.Random(seed)
    rounds = kind(np.zeros(SIZE), range(len(steps)), consistency)
    model, at, ends = np.zeros(SIZE), [0] * len(steps), [math.inf] * len(steps)
    while math.inf in ends:
        worker = chance.choice([number for number, end in enumerate(ends) if end == math.inf])
        step = at[worker]
        if step == steps[worker]:
            rounds.finish(worker, step)
            ends[worker] = step
            continue
        push = learned(worker, step, np.zeros(SIZE))
        rounds.push(push)
        at[worker] += 1
        model[push.cells.index] += push.cells.values / sum(end > step for end in ends)
    np.testing.assert_allclose(rounds.versions.model, model, rtol=1e-12, atol=1e-15)


def check_staleness(seed: int, staleness: int, *, kind: type[Rounds] = Rounds) -> int:
    """No step begins too far ahead of others; how far ahead any was."""
    chance = random.Random(seed)
    rounds = kind(np.zeros(SIZE), range(3), SSP(staleness))
    workers = [Worker(number, 8, rounds) for number in range(3)]
    farthest = calls = 0
    while not all(worker.ended for worker in workers):
        calls += 1
        assert calls < MOST_CALLS, "they come to no end"
        # The first is slow.
        worker = chance.choice(workers[1:] * 5 + workers[:1])
        if worker.ended:
            continue
        before = worker.at
        if worker.act() and 0 <= before < 8:
            others = [one.at for one in workers if one is not worker and not one.ended and one.at < 8]
            lag = max((before - max(at, 0) for at in others), default=0)
            assert min(one.at for one in workers) >= 0, "somebody was not there"
            assert lag <= staleness
            farthest = max(farthest, lag)
    return farthest


def check_incarnations(seed: int, *, kind: type[Rounds] = Rounds) -> None:
    """A worker is declared lost and goes on unheard beside its successor: from then on only that one counts."""
    chance = random.Random(seed)
    rounds = kind(np.zeros(SIZE), [0], ASP())
    at = dict.fromkeys(range(3), 0)
    newest = pushed = 0
    while pushed < 6:
        incarnation = chance.randrange(3)
        push = replace(learned(0, at[incarnation], np.full(SIZE, float(incarnation))), incarnation=incarnation)
        counted = len(rounds.merged)
        try:
            rounds.push(push)
        except ValueError:
            assert incarnation < newest, "only what is lost is refused"
            with pytest.raises(ValueError, match="is lost"):
                rounds.check_in(0, incarnation)
            continue
        assert incarnation >= newest, "a lost incarnation was heard"
        newest = incarnation
        at[incarnation] += 1
        pushed += len(rounds.merged) - counted
