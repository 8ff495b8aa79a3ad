"""When windows close, what is late, and what can be forgotten."""

from __future__ import annotations

import pyarrow as pa
import pytest

from afspark.errors import UsageError
from afspark.model.windows import (
    Decaying,
    Hopping,
    PaneReport,
    Part,
    Punctuation,
    Sliding,
    Window,
    WindowProgress,
    late,
)


def part(pane: int, rows: int) -> Part:
    return Part(pane, pa.record_batch({"row": list(range(rows))}))


def seen(worker: int, *panes: int, latest: float | None = None, items: int = 0) -> PaneReport:
    return PaneReport(worker=worker, panes=frozenset(panes), latest=latest, seen=items)


def due(window_progress: WindowProgress, window: Window, now: float = 0) -> list[int]:
    return [mark.window for mark in window_progress.closings(window, now=now)]


def test_a_window_closes_when_the_delay_after_its_end_has_passed() -> None:
    window = Hopping(10, column="at", delay=5)
    window_progress = WindowProgress().after(window, [seen(0, 0, 2, latest=14), seen(1, 1, latest=24)])
    assert due(window_progress, window) == [0]
    assert window_progress.closings(window, now=0, operator="sum") == [Punctuation("sum", 0, 0, 10)]
    closed = window_progress.closed(window, now=0)
    assert (closed.first_open, closed.touched) == (1, {1, 2})
    assert due(closed, window) == [] and closed.closed(window, now=0) == closed
    later = closed.after(window, [seen(0, 2, latest=25)])
    assert due(later, window) == [1]


def test_nothing_closes_before_any_time_was_seen() -> None:
    window = Hopping(10, column="at")
    assert WindowProgress().closings(window, now=1e9) == []
    assert WindowProgress().closed(window, now=1e9) == WindowProgress()


def test_items_below_the_first_open_pane_are_late() -> None:
    window = Hopping(10, column="at")
    window_progress = WindowProgress(first_open=3)
    kept, dropped = late(window, window_progress, [part(1, 2), part(2, 3), part(3, 4), part(9, 1)])
    assert [one.pane for one in kept] == [3, 9] and dropped == 5
    assert late(window, WindowProgress(), [part(-7, 2)])[1] == 0
    assert late(Decaying(0.5, 10, column="at"), window_progress, [part(1, 2)])[1] == 0


def test_a_sliding_window_keeps_panes_until_its_last_window_closed() -> None:
    window = Sliding(30, 10, column="at")
    window_progress = WindowProgress().after(window, [seen(0, 0, 1, latest=15)])
    assert due(window_progress, window) == [0]
    window_progress = window_progress.closed(window, now=0)
    assert (window_progress.first_open, window_progress.touched) == (1, {0, 1})
    window_progress = window_progress.after(window, [seen(0, 9, latest=95)])
    assert due(window_progress, window) == [1, 2, 3]
    assert window_progress.closings(window, now=0)[0] == Punctuation("", 1, -10, 20)
    window_progress = window_progress.closed(window, now=0)
    assert window_progress.touched == {9}
    assert [mark.window for mark in window_progress.finale(window)] == [9, 10, 11]


def test_a_gap_costs_nothing() -> None:
    window = Sliding(3, 1, column="at")
    far = 10**15
    window_progress = WindowProgress().after(window, [seen(0, 0, far, latest=far)])
    assert due(window_progress, window) == [0, 1, 2]
    assert [mark.window for mark in window_progress.closed(window, now=0).finale(window)] == [far, far + 1, far + 2]


def test_processing_time_closes_by_the_clock() -> None:
    window = Hopping(10, by="processing")
    window_progress = WindowProgress.start(window, workers=2).after(window, [seen(0, 2, latest=25)])
    assert due(window_progress, window, now=29.9) == [] and due(window_progress, window, now=30) == [2]
    closed = window_progress.closed(window, now=30)
    assert closed.clock(12) == 30 and closed.clock(31) == 31
    assert closed.touched == frozenset()


def test_counted_windows_close_when_every_worker_is_past_them() -> None:
    window = Hopping(10, by="count")
    window_progress = WindowProgress.start(window, workers=2)
    assert window_progress.seen == (0, 0) and due(window_progress, window) == []
    window_progress = window_progress.after(window, [seen(0, 0, 1, 2, items=11), seen(1, 0, items=4)])
    assert due(window_progress, window) == []
    assert window_progress.blank(1) == PaneReport(worker=1, seen=4)
    window_progress = window_progress.after(window, [seen(1, 0, items=5)])
    assert due(window_progress, window) == [0]
    assert WindowProgress.from_json(window_progress.to_json()) == window_progress
    assert [mark.window for mark in window_progress.finale(window)] == [0, 1, 2]


def test_counted_windows_must_suit_the_workers() -> None:
    window = Hopping(10, by="count")
    with pytest.raises(UsageError):
        WindowProgress.start(window, workers=3)
    with pytest.raises(UsageError):
        WindowProgress().closings(window, now=0)


def test_ticks_end_once_although_old_items_are_welcome() -> None:
    window = Decaying(0.5, 10, column="at")
    window_progress = WindowProgress().after(window, [seen(0, 0, 3, latest=35)])
    assert due(window_progress, window) == [0]
    window_progress = window_progress.closed(window, now=0).after(window, [seen(0, 1, latest=41)])
    assert due(window_progress, window) == [3]
