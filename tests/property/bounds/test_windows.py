"""No window loses more than its limit, however many failures strike it; new windows start afresh."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afspark.bounds.thresholds import Place, threshold
from afspark.bounds.windows import (
    Failure,
    Windowing,
    decayed,
    decayed_at_most,
    failures_in_force,
    pane_threshold,
    strictest,
)
from afspark.errors import UsageError

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


def losses_of_panes(history: History, limit: float, kind: Windowing, panes: int) -> dict[int, list[float]]:
    """What each pane can have lost by the end: θ in force at each failure that struck it, over all workers."""
    known: dict[int, list[Failure]] = defaultdict(list)
    lost: dict[int, list[float]] = defaultdict(list)
    for worker, failure in failures_of(history):
        for pane in range(failure.first_open, failure.newest + 1):
            lost[pane].append(pane_threshold(limit, kind, known[worker], pane, panes=panes, place=WORKERS))
        known[worker].append(failure)
    return lost


@given(history=histories, limit=limits)
def test_a_hopping_window_loses_at_most_its_limit(history: History, limit: float) -> None:
    for losses in losses_of_panes(history, limit, Windowing.HOPPING, 1).values():
        assert math.fsum(losses) <= limit * (1 + 1e-12)


@given(history=histories, limit=limits, panes=st.integers(1, 6))
def test_a_sliding_window_loses_at_most_its_limit(history: History, limit: float, panes: int) -> None:
    lost = losses_of_panes(history, limit, Windowing.SLIDING, panes)
    for last in range(-6, 70):
        window = [loss for pane in range(last - panes + 1, last + 1) for loss in lost.get(pane, [])]
        assert math.fsum(window) <= limit * (1 + 1e-12)


@given(history=histories, limit=limits, panes=st.integers(1, 6))
def test_a_sum_over_all_open_panes_needs_no_division_by_panes(history: History, limit: float, panes: int) -> None:
    """Where one divergence adds up the cells of all panes, a failure takes at most θ from all of them together."""
    known: dict[int, list[Failure]] = defaultdict(list)
    taken: list[tuple[Failure, float]] = []
    for worker, failure in failures_of(history):
        opened = {"first_open": failure.first_open, "newest": failure.newest}
        k = strictest("sliding", known[worker], **opened, panes=panes)
        taken.append((failure, threshold(limit, failures=k, place=WORKERS)))
        known[worker].append(failure)
    for last in range(-6, 70):
        struck = (theta for failure, theta in taken if failure.struck(last - panes + 1, last))
        assert math.fsum(struck) <= limit * (1 + 1e-12)


@pytest.mark.parametrize(("kind", "panes"), [("hopping", 1), ("sliding", 1), ("sliding", 4)])
def test_the_limit_is_used_up_but_not_exceeded(kind: str, panes: int) -> None:
    """All workers fail 30 times while the same panes are open: the bound is as tight as it can be."""
    history = [(0, worker, 30, panes) for worker in range(3)]
    lost = losses_of_panes(history, 1000.0, Windowing.parse(kind), panes)
    total = math.fsum(loss for losses in lost.values() for loss in losses)
    assert 999.9 < total <= 1000.0


@given(
    struck=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10),
    kind=st.sampled_from([Windowing.HOPPING, Windowing.SLIDING]),
    panes=st.integers(1, 5),
)
def test_a_failure_stops_counting(struck: list[tuple[int, int]], kind: Windowing, panes: int) -> None:
    failures = [Failure(first, first + more) for first, more in struck]
    beyond = max((failure.newest for failure in failures), default=0) + panes
    assert failures_in_force(kind, failures, beyond, panes) == 0
    assert failures_in_force("none", failures, beyond, panes) == len(failures)
    assert failures_in_force("decaying", failures, 0, panes) == 0


@given(
    struck=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=10),
    kind=st.sampled_from(Windowing),
    opened=st.tuples(st.integers(0, 20), st.integers(0, 5)),
    panes=st.integers(1, 5),
)
def test_one_threshold_for_all_open_panes_is_the_smallest(
    struck: list[tuple[int, int]], kind: Windowing, opened: tuple[int, int], panes: int
) -> None:
    failures = [Failure(first, first + more) for first, more in struck]
    first, newest = opened[0], sum(opened)
    most = strictest(kind, iter(failures), first_open=first, newest=newest, panes=panes)
    each = [failures_in_force(kind, failures, pane, panes) for pane in range(first, newest + 1)]
    assert most == max(each)


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
    assert decayed(losses, decay) <= decayed_at_most(theta, decay, gap=1) * (1 + 1e-9)


def test_failures_that_never_fade_have_no_bound() -> None:
    assert decayed_at_most(1.0, decay=1.0, gap=5) == decayed_at_most(1.0, decay=0.5, gap=0) == math.inf


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError):
        failures_in_force("tumbling", [], 0)
    with pytest.raises(UsageError):
        failures_in_force("sliding", [], 0, panes=0)
    with pytest.raises(UsageError):
        decayed([], decay=1.5)
    with pytest.raises(ValueError, match="range"):
        Failure(3, 2)
