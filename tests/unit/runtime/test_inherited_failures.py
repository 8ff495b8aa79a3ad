"""What new workers inherit of the failures of others: never less than can be missing, never more than was promised."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds import Place
from afspark.coordinator.recovery.error_budget import CountedFailures, ErrorBudget
from afspark.coordinator.rescaling import inherited_failures
from afspark.coordinator.rescaling.inherited_failures import inherited
from afspark.coordinator.rescaling.redivided import Handover
from afspark.model.states import HashTable
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.numbers import Incarnation, PaneNumber
from afspark.policies import Approximate
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.losses import LossEvidence
from afspark.store import CountedFailure

pytestmark = pytest.mark.some(2)

THETA = 1000.0
STATES = {
    "apart": HashTable(divergence="max", operator_key=True),
    "together": HashTable(divergence="manhattan", operator_key=True),
}
WINDOWS: dict[str, Window | None] = {
    "none": None,
    "hopping": Hopping(10, by="processing"),
    "sliding": Sliding(30, 10, by="processing"),
    "decaying": Decaying(0.5, 10, by="processing"),
}


def budget_for(workers: int, *, keyed: bool, window: str) -> ErrorBudget:
    place = Place(workers=workers, keyed=keyed)
    return ErrorBudget(tolerance=Approximate(theta=THETA), states=STATES, place=place, window=WINDOWS[window])


def failing(
    budget: ErrorBudget, counted_failures: CountedFailures, incarnation: int, panes: frozenset[int]
) -> tuple[CountedFailure, ...]:
    """A worker with these failures fails once more, while these panes are open."""
    batch_time = BatchTime(exposed=frozenset(map(PaneNumber, panes)))
    return (
        *counted_failures,
        budget.count_failure(counted_failures, batch_time, LossEvidence(Incarnation(incarnation))),
    )


Losses = st.lists(st.tuples(st.integers(0, 5), st.frozensets(st.integers(0, 6), min_size=1, max_size=3)), max_size=8)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("window", ["none", "hopping", "sliding"])
@given(numbers=st.lists(st.integers(1, 6), min_size=2, max_size=4), losses=st.lists(Losses, min_size=4, max_size=4))
def test_all_failures_together_take_no_more_than_promised(
    keyed: bool, window: str, numbers: list[int], losses: list[list[tuple[int, frozenset[int]]]]
) -> None:
    per_worker: list[tuple[CountedFailure, ...]] = [()] * numbers[0]
    told_before: dict[int | None, dict[str, float]] = {}
    for turn, workers in enumerate(numbers):
        budget = budget_for(workers, keyed=keyed, window=window)
        if turn:
            before = budget_for(numbers[turn - 1], keyed=keyed, window=window)
            handover = Handover(former=tuple([None] * numbers[turn - 1]), workers=workers, keyed=keyed)  # type: ignore[arg-type]
            merged = [handover.shares_of(worker) for worker in range(workers)]
            most = max(before.failures_in(one) for one in per_worker)
            per_worker = inherited(before, per_worker, merged, keyed=keyed, word=f"turn {turn}")
            assert len(per_worker) == workers
            assert budget.paned or all(budget.failures_in(one) == most for one in per_worker)
        for number, (worker, panes_open) in enumerate(losses[turn]):
            at = worker % workers
            per_worker[at] = failing(budget, per_worker[at], 100 * turn + number, panes_open)
        told = {pane: _told(budget, per_worker, pane) for pane in ([None] if window == "none" else range(8))}
        for pane, bounds in told.items():
            for state, most in bounds.items():
                assert most >= told_before.get(pane, {}).get(state, 0.0) - 1e-9, "a loss is forgotten"
                assert most <= THETA * (1 + 1e-9), (pane, state, most)
        told_before = told


def _told(budget: ErrorBudget, per_worker: list[tuple[CountedFailure, ...]], pane: int | None) -> dict[str, float]:
    return budget.realised(per_worker) if pane is None else budget.realised(per_worker, window=pane)


@pytest.mark.parametrize("keyed", [True, False])
def test_decayed_losses_stay_what_they_were(keyed: bool) -> None:
    before = budget_for(2, keyed=keyed, window="decaying")
    lists = [
        (CountedFailure(taken={"apart": 8.0, "together": 4.0}, tick=PaneNumber(1)),),
        (CountedFailure(taken={"apart": 2.0, "together": 1.0}, tick=PaneNumber(3)),),
    ]
    after = inherited(before, lists, [(0,), (1,), ()], keyed=keyed, word="x")
    now = budget_for(3, keyed=keyed, window="decaying")
    for tick in (3, 5):
        was, told = before.realised(lists, tick=tick), now.realised(after, tick=tick)
        assert told["together"] == pytest.approx(was["together"])
        assert was["apart"] <= told["apart"] <= THETA


@pytest.mark.parametrize("keyed", [True, False])
def test_nobody_inherits_failures_that_there_were_not(keyed: bool) -> None:
    budget = budget_for(2, keyed=keyed, window="none")
    assert inherited(budget, [(), ()], [(0,), (1,), ()], keyed=keyed, word="x") == [(), (), ()]


def test_a_worker_of_a_divided_state_is_told_all_that_may_be_missing() -> None:
    """And yet it is counted once."""
    budget = budget_for(2, keyed=True, window="none")
    lists = [failing(budget, (), 0, frozenset()), ()]
    after = inherited(budget, lists, [(0,), (1,), ()], keyed=True, word="x")
    now = budget_for(3, keyed=True, window="none")
    for one in after:
        assert now.missing(one) == budget.missing(lists[0])
        assert now.theta(one) == {"apart": THETA / 4, "together": THETA / 12}
    assert now.realised(after) == budget.realised(lists)
    assert math.isfinite(sum(now.realised(after).values()))


@pytest.mark.parametrize("halves", [True, False])
def test_without_their_number_failures_would_take_more_than_promised(
    halves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not halves:
        monkeypatch.setattr(inherited_failures, "_halving", lambda *_: [])
    per_worker: list[tuple[CountedFailure, ...]] = [(), ()]
    for turn, workers in enumerate((2, 3)):
        budget = budget_for(workers, keyed=True, window="none")
        if turn:
            per_worker = inherited(
                budget_for(2, keyed=True, window="none"), per_worker, [(0,), (1,), ()], keyed=True, word="x"
            )
        for number in range(4 * workers):
            at = number % workers
            per_worker[at] = failing(budget, per_worker[at], 100 * turn + number, frozenset())
    assert all(most <= THETA for most in budget.realised(per_worker).values()) == halves


@pytest.mark.parametrize("theta", [0.0, THETA])
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("window", ["none", "hopping"])
def test_items_that_may_wait_stay_as_few_as_failures_have_made_them(theta: float, keyed: bool, window: str) -> None:
    """Their number goes by that of failures, also where these could take nothing from a state."""

    def granted(workers: int) -> ErrorBudget:
        tolerance = Approximate(theta=theta, items=64)
        place = Place(workers=workers, keyed=keyed)
        return ErrorBudget(tolerance=tolerance, states=STATES, place=place, window=WINDOWS[window])

    before = granted(2)
    per_worker: list[tuple[CountedFailure, ...]] = [(), ()]
    for number in range(3):
        per_worker[0] = failing(before, per_worker[0], number, frozenset({1}))
    left = 2 * before.items(per_worker[0])
    for turn, workers in enumerate((3, 1, 2)):
        merged = [tuple(range(worker, len(per_worker), workers)) for worker in range(workers)]
        per_worker = inherited(granted(len(per_worker)), per_worker, merged, keyed=keyed, word=f"turn {turn}")
        assert all(workers * granted(workers).items(one) <= left for one in per_worker)
    assert theta or all(len(one) == 3 for one in per_worker), "none is made up"


def test_counted_failures_survive_a_record() -> None:
    shared = CountedFailure(taken={"a": 1.0}, shared="before incarnation 3")
    assert CountedFailure.from_json(shared.to_json()) == shared
    assert "shared" not in CountedFailure().to_json()
