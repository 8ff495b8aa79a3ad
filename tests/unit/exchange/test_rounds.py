"""Rounds against a plain model of what each consistency promises, in random orders of what workers do."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from afspark.exchange.rounds import Push, PushOutcome, Rounds
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.training import Cells, StepFacts
from tests.unit.exchange.stepping import (
    SIZE,
    check_incarnations,
    check_merges,
    check_rounds,
    check_staleness,
    check_weights,
    learned,
)


@pytest.mark.parametrize("seed", range(60))
def test_in_rounds_the_model_is_bit_for_bit_that_of_a_plain_loop(seed: int) -> None:
    steps = random.Random(seed).choices(range(7), k=3)
    if not max(steps):
        steps[0] = 1
    for kills in (0.0, 0.2):
        check_rounds(seed, steps, kills=kills)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("consistency", [SSP(0), SSP(2), ASP()], ids=str)
def test_nothing_is_merged_twice_or_left_out(seed: int, consistency: Consistency) -> None:
    check_merges(seed, consistency, [5, 0, 3, 6])


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("consistency", [SSP(2), ASP()], ids=str)
def test_what_is_merged_as_it_arrives_counts_as_one_of_those_at_work(seed: int, consistency: Consistency) -> None:
    check_weights(seed, consistency, [5, 0, 3, 6])


@pytest.mark.parametrize("consistency", [BSP(), SSP(0), ASP()], ids=str)
@pytest.mark.parametrize("items", [1, 10_000])
def test_steps_of_the_same_size_count_alike_however_short_they_are(consistency: Consistency, items: int) -> None:
    rounds = Rounds(np.zeros(SIZE), range(3), consistency)
    rounds.finish(2, 0)
    for worker in (0, 1):
        cells = Cells(np.array([worker], np.uint32), np.array([1.0]))
        rounds.push(Push(worker=worker, step=0, facts=StepFacts(items=items), cells=cells, digest=""))
    assert rounds.versions.model[:3].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_a_step_never_lacks_more_of_others_than_the_staleness(seed: int, staleness: int) -> None:
    assert check_staleness(seed, staleness) == staleness


@pytest.mark.parametrize("seed", range(40))
def test_nothing_of_a_lost_incarnation_counts_once_another_is_known(seed: int) -> None:
    check_incarnations(seed)


class _MergesAgain(Rounds):
    def push(self, push: Push) -> PushOutcome:
        found = super().push(push)
        if found is not PushOutcome.TAKEN:
            self.versions.merge([(push.cells, 1.0)])
        return found


class _ByArrival(Rounds):
    def _merge(self, pushes: list[Push], weights: Sequence[float]) -> None:
        super()._merge(pushes[::-1], weights[::-1])


class _CountsAllOfARoundAlike(Rounds):
    def _merge(self, pushes: list[Push], weights: Sequence[float]) -> None:
        super()._merge(pushes, [1 / len(pushes)] * len(pushes) if self.consistency.in_rounds else weights)


class _CountsShortStepsLess(Rounds):
    def _merge(self, pushes: list[Push], weights: Sequence[float]) -> None:
        alone = not self.consistency.in_rounds
        super()._merge(pushes, [weights[0] * pushes[0].facts.items / 3] if alone else weights)


class _CountsThoseWhoHaveEnded(Rounds):
    def _merge(self, pushes: list[Push], weights: Sequence[float]) -> None:
        alone = not self.consistency.in_rounds
        super()._merge(pushes, [1 / len(self._members)] if alone else weights)


class _TooFar(Rounds):
    def may_begin(self, worker: int, step: int) -> bool:
        return super().may_begin(worker, max(0, step - 1))


class _WaitsForNobody(Rounds):
    def missing(self) -> list[int]:
        return []


class _WaitsForThoseWhoHaveEnded(Rounds):
    def _merged_by_all(self) -> float:
        return min(member.merged for member in self._members.values())


class _AnswersWithTheNewest(Rounds):
    def version_for(self, step: int) -> int:
        return self.versions.newest


class _ForgetsTheLast(Rounds):
    def finish(self, worker: int, steps: int, incarnation: int = 0) -> None:
        if steps > 1:
            self._members[worker].pushes.pop()
        super().finish(worker, max(0, steps - 1), incarnation)


class _AdmitsTheLost(Rounds):
    def admit(self, worker: int, incarnation: int) -> None:
        pass


def _all(seed: int, kind: type[Rounds]) -> None:
    check_rounds(seed, [5, 7, 2, 9], kills=0.1, kind=kind)
    check_merges(seed, ASP(), [5, 0, 3, 6], kind=kind)
    check_merges(seed, SSP(2), [5, 0, 3, 6], kind=kind)
    check_weights(seed, ASP(), [5, 0, 3, 6], kind=kind)
    check_staleness(seed, 2, kind=kind)
    check_incarnations(seed, kind=kind)


@pytest.mark.parametrize(
    "kind",
    [
        _MergesAgain,
        _ByArrival,
        _CountsAllOfARoundAlike,
        _CountsShortStepsLess,
        _CountsThoseWhoHaveEnded,
        _TooFar,
        _WaitsForNobody,
        _WaitsForThoseWhoHaveEnded,
        _AnswersWithTheNewest,
        _ForgetsTheLast,
        _AdmitsTheLost,
    ],
    ids=lambda kind: kind.__name__.strip("_"),
)
def test_a_planted_mistake_is_found(kind: type[Rounds]) -> None:
    found = 0
    for seed in range(10):
        try:
            _all(seed, kind)
        except (AssertionError, ValueError, IndexError):
            found += 1
    assert found


def test_a_push_that_differs_from_the_first_of_its_step_is_told_and_left_out() -> None:
    rounds = Rounds(np.zeros(SIZE), [0], ASP())
    rounds.check_in(0)
    first = learned(0, 0, np.zeros(SIZE))
    assert rounds.push(first) is PushOutcome.TAKEN
    assert rounds.push(first) is PushOutcome.REPEATED
    model = rounds.versions.model.copy()
    assert rounds.push(learned(0, 0, np.ones(SIZE))) is PushOutcome.DIFFERS
    np.testing.assert_array_equal(rounds.versions.model, model)


def test_nobody_begins_before_all_are_there_and_who_is_waited_for_is_known() -> None:
    rounds = Rounds(np.zeros(SIZE), [0, 1], ASP())
    rounds.check_in(0)
    assert not rounds.may_begin(0, 0)
    assert rounds.waits_for(0) == [1]
    rounds.check_in(1)
    assert rounds.may_begin(0, 0)


def test_steps_that_are_left_out_are_refused() -> None:
    rounds = Rounds(np.zeros(SIZE), [0], BSP())
    with pytest.raises(ValueError, match="step 1 after 0"):
        rounds.push(learned(0, 1, np.zeros(SIZE)))
    with pytest.raises(ValueError, match="ends after 2"):
        rounds.finish(0, 2)
