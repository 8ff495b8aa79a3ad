"""No window loses more than its limit, however many failures affect it; new windows start afresh."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds.thresholds import Place, threshold
from afspark.bounds.windows import Failure, Windowing, decayed, failures_in_force
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.errors import UsageError
from afspark.model.states import HashTable
from afspark.model.windows import Decaying, Hopping, Sliding, Window
from afspark.policies import Approximate
from afspark.store import CountedFailure

# Each step of a history: panes the stream moves on, then the worker that fails, how often, and its open panes.
History = list[tuple[int, int, int, int]]
histories = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=20
)
limits = st.floats(1e-3, 1e9)
WORKERS = Place(workers=3)


def failures_of(history: History) -> Iterator[tuple[int, Failure]]:
    """Worker and failure, in order."""
    newest = 0
    for moved, worker, times, opened in history:
        newest += moved
        for _ in range(times):
            yield worker, Failure(newest - opened + 1, newest)


def window_of(panes: int) -> Window:
    return Hopping(1, column="time") if panes == 0 else Sliding(panes, 1, column="time")


def terms_of(window: Window, limit: float, *, operator_key: bool = False) -> ErrorBudget:
    states = {"counts": HashTable(operator_key=operator_key)}
    place = Place(workers=3, keyed=True)
    return ErrorBudget(tolerance=Approximate(limit), states=states, place=place, window=window)


def counted(terms: ErrorBudget, history: History) -> list[tuple[CountedFailure, ...]]:
    """What the engine knows of each worker by the end: θ in force at each failure, for every pane that was open."""
    known: dict[int, tuple[CountedFailure, ...]] = defaultdict(tuple)
    for worker, failure in failures_of(history):
        opened = range(failure.first_open, failure.newest + 1)
        taken = {pane: terms.theta(known[worker], pane) for pane in opened}
        known[worker] += (CountedFailure(pane_taken=taken, panes=(failure.first_open, failure.newest)),)
    return [known[worker] for worker in range(WORKERS.workers)]


@given(history=histories, limit=limits, panes=st.integers(0, 6), operator_key=st.booleans())
def test_what_is_told_of_a_window_is_at_most_its_limit(
    history: History, limit: float, panes: int, operator_key: bool
) -> None:
    """``panes`` 0: hopping. Where no key is in two shares, a worker's losses are its own keys' alone."""
    terms = terms_of(window_of(panes), limit, operator_key=operator_key)
    known = counted(terms, history)
    for last in range(-6, 70):
        told = terms.realised(known, window=last)["counts"]
        apart = [terms.window_missing(failures, last)["counts"] for failures in known]
        assert (max(apart) if operator_key else math.fsum(apart)) <= told * (1 + 1e-12)
        assert told <= limit * (1 + 1e-12)


@pytest.mark.parametrize("panes", [0, 1, 4])
def test_the_limit_is_used_up_but_not_exceeded(panes: int) -> None:
    """All workers fail 30 times while the same panes are open: the bound is as tight as it can be."""
    terms = terms_of(window_of(panes), 1000.0)
    known = counted(terms, [(0, worker, 30, max(panes, 1)) for worker in range(3)])
    assert 999.9 < terms.realised(known, window=0)["counts"] <= 1000.0


@given(
    ranges=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10),
    kind=st.sampled_from([Windowing.HOPPING, Windowing.SLIDING]),
    panes=st.integers(1, 5),
)
def test_a_failure_stops_counting(ranges: list[tuple[int, int]], kind: Windowing, panes: int) -> None:
    failures = [Failure(first, first + more) for first, more in ranges]
    beyond = max((failure.newest for failure in failures), default=0) + panes
    assert failures_in_force(kind, failures, beyond, panes) == 0
    assert failures_in_force("none", failures, beyond, panes) == len(failures)
    assert failures_in_force("decaying", failures, 0, panes) == 0


@given(
    inputs=st.lists(st.floats(0, 10), min_size=1, max_size=60),
    failed=st.sets(st.integers(0, 59), max_size=20),
    decay=st.floats(0, 1),
    limit=st.floats(0, 100),
)
def test_a_decaying_state_keeps_its_promise(inputs: list[float], failed: set[int], decay: float, limit: float) -> None:
    """A decaying sum that is thrown back by as much as its threshold allows, at whichever moments."""
    theta = threshold(limit, place=WORKERS, failures=len(failed), decaying=True)
    assert theta == limit / 3  # failures do not halve it
    ideal = actual = backup = 0.0
    for moment, value in enumerate(inputs):
        ideal, actual = ideal * decay + value, actual * decay + value
        if abs(actual - backup) > theta:
            backup = actual
        if moment in failed:
            actual = backup
    end = len(inputs) - 1
    losses = [(end - moment, theta) for moment in failed if moment <= end]
    assert abs(ideal - actual) <= decayed(losses, decay) + 1e-9
    if 0 < decay < 1:
        window = Decaying(decay, 1, column="time")
        failures = tuple(CountedFailure(taken={"counts": theta}, tick=moment) for moment in failed if moment <= end)
        told = terms_of(window, limit).realised([failures, (), ()], tick=end)["counts"]
        assert told == pytest.approx(decayed(losses, decay))


def test_a_loss_of_a_later_tick_weighs_more() -> None:
    assert decayed([(-2, 1.0)], decay=0.5) == 4.0
    assert decayed([(-5000, 1.0)], decay=0.5) == math.inf
    assert decayed([(-5000, 0.0)], decay=0.5) == 0.0


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError):
        failures_in_force("tumbling", [], 0)
    with pytest.raises(UsageError):
        failures_in_force("sliding", [], 0, panes=0)
    with pytest.raises(UsageError):
        decayed([], decay=1.5)
    with pytest.raises(ValueError, match="range"):
        Failure(3, 2)
