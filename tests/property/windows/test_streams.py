"""Windows over arbitrary streams, cut into arbitrary batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from afspark.model.windows import Decaying, Hopping, Sliding, Window, split
from tests.property.windows.rehearsal import Rehearsal

WORKERS = 2
SIZES = st.one_of(st.integers(1, 20), st.sampled_from([0.1, 0.25, 0.7, 1 / 3, 3.3]))
DELAYS = st.one_of(st.just(0), st.integers(0, 60), st.floats(0, 40))


@st.composite
def event_windows(draw: st.DrawFn, delays: st.SearchStrategy[float] = DELAYS) -> Window:
    size, delay, panes = draw(SIZES), draw(delays), draw(st.integers(1, 4))
    if panes == 1:
        return Hopping(size, column="at", delay=delay)
    slide = size if isinstance(size, int) else 0.1
    return Sliding(round(panes * slide, 1), slide, column="at", delay=delay)


def shares(times: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*[st.lists(times, max_size=8)] * WORKERS)


WHOLE = st.integers(-100, 200)
REAL = st.one_of(WHOLE.map(float), st.floats(-100, 200), st.sampled_from([math.nan, math.inf, -math.inf, 0.3, 0.7]))


def with_gaps(times: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(shares(st.one_of(times, times, times, st.none())), max_size=6)


@settings(max_examples=70)
@given(event_windows(), with_gaps(WHOLE))
def test_whole_event_times(window: Window, batches: Any) -> None:
    Rehearsal(window, WORKERS, pa.int64()).run(batches).check()


@settings(max_examples=70)
@given(event_windows(), with_gaps(REAL))
def test_real_event_times(window: Window, batches: Any) -> None:
    Rehearsal(window, WORKERS, pa.float64()).run(batches).check()


@settings(max_examples=40)
@given(event_windows(), with_gaps(st.integers(-(10**11), 2 * 10**11)), st.sampled_from(["ns", "us", "ms"]))
def test_timestamps(window: Window, batches: Any, unit: str) -> None:
    coarser = {"ns": 1, "us": 10**3, "ms": 10**6}[unit]
    scaled = [[[t if t is None else t // coarser for t in share] for share in batch] for batch in batches]
    Rehearsal(window, WORKERS, pa.timestamp(unit)).run(scaled).check()


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 5), with_gaps(st.just(0)), st.integers(1, 3))
def test_counted_items(panes: int, quota: int, batches: Any, repeat: int) -> None:
    size = quota * WORKERS
    rehearsal = Rehearsal(Sliding(panes * size, size, by="count"), WORKERS, pa.int64()).run(batches * repeat)
    rehearsal.check()
    assert rehearsal.late == rehearsal.unplaced == 0


@settings(max_examples=40)
@given(
    st.integers(1, 3),
    st.sampled_from([1, 5, 0.1]),
    with_gaps(st.just(0)),
    st.lists(st.floats(0, 30), min_size=1, max_size=8),
)
def test_processing_time_with_a_clock_that_jumps(panes: int, slide: float, batches: Any, clock: list[float]) -> None:
    rehearsal = Rehearsal(Sliding(round(panes * slide, 1), slide, by="processing"), WORKERS, pa.int64())
    rehearsal.run(batches, clock).check()
    assert rehearsal.late == rehearsal.unplaced == 0


@settings(max_examples=40)
@given(st.integers(1, 10), with_gaps(WHOLE))
def test_every_tick_with_new_items_ends_once_and_nothing_is_late(every: int, batches: Any) -> None:
    rehearsal = Rehearsal(Decaying(0.5, every, column="at"), WORKERS, pa.int64()).run(batches)
    assert rehearsal.late == 0
    assert len(rehearsal.kept) + rehearsal.unplaced == rehearsal.items
    order = [mark.window for mark in rehearsal.marks]
    assert order == sorted(set(order))
    assert set(order) <= set(rehearsal.kept.values())


def punctual(steps: list[tuple[float, float]], delay: float) -> list[float]:
    """A sequence of times of which none is more than ``delay`` before the latest one."""
    latest, times = 0.0, []
    for forward, back in steps:
        times.append(max(latest + forward - back * delay, latest - delay))
        latest = max(latest, times[-1])
    return times


@settings(max_examples=70)
@given(
    event_windows(),
    st.lists(st.tuples(st.floats(0, 9), st.floats(0, 1)), max_size=30),
    st.lists(st.integers(0, 30), max_size=6),
    st.lists(st.integers(0, 30), max_size=6),
)
def test_batch_cuts_do_not_matter_to_punctual_items(window: Window, steps: Any, cuts: Any, others: Any) -> None:
    times = punctual(steps, window.patience)
    seen = []
    for places in (sorted(cuts), sorted(others)):
        batches = [[list(piece)] for piece in np.split(np.array(times), places)]
        rehearsal = Rehearsal(window, 1).run(batches)
        rehearsal.check()
        assert rehearsal.late == 0
        seen.append(rehearsal.tally(batches))
    assert seen[0] == seen[1]


@settings(max_examples=40)
@given(
    st.sampled_from([0.1, 0.7, 1, 60, 1 / 3, 1e-6]),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
    st.sampled_from(["ns", "us"]),
)
def test_ascending_timestamps_are_never_late(length: float, steps: list[int], unit: str) -> None:
    start = 1_700_000_000 * (10**9 if unit == "ns" else 10**6)
    times = (start + np.cumsum(steps)).tolist()
    rehearsal = Rehearsal(Hopping(length, column="at"), 1, pa.timestamp(unit)).run([[[time]] for time in times])
    assert rehearsal.late == rehearsal.unplaced == 0
    rehearsal.check()


@given(
    SIZES,
    st.lists(st.one_of(st.floats(-1e9, 1e9), st.integers(-300, 300).map(lambda n: n * 0.1)), min_size=1, max_size=30),
)
def test_an_item_lies_between_the_edges_of_its_only_pane(size: float, times: list[float]) -> None:
    window = Hopping(size, column="at")
    divided = split(window, pa.record_batch({"at": times}), now=0, seen=0, workers=1)
    panes = [part.pane for part in divided.parts]
    assert panes == sorted(set(panes))
    found: list[float] = []
    for part in divided.parts:
        inside = part.items["at"].to_pylist()
        assert all(window.edge(part.pane) <= time < window.edge(part.pane + 1) for time in inside)
        assert all(window.pane(time) == part.pane for time in inside)
        found += inside
    assert sorted(found) == sorted(times) and divided.latest == max(times)
