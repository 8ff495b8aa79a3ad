"""A stream driven through windows as the engine does it, with everything written down."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from afspark.model.windows import Punctuation, Window, WindowProgress, late, split

#: the times that each worker gets in one batch
Batch = Sequence[Sequence[float | None]]


@dataclass
class Rehearsal:
    """Items are numbered in the order they are taken; ``kept`` gives the pane of each that was applied."""

    window: Window
    workers: int
    kind: pa.DataType = field(default_factory=pa.float64)
    kept: dict[int, int] = field(default_factory=dict)
    contents: dict[int, list[int]] = field(default_factory=dict)
    marks: list[Punctuation] = field(default_factory=list)
    late: int = 0
    unplaced: int = 0
    items: int = 0

    def run(self, batches: Sequence[Batch], clock: Sequence[float] | None = None) -> Rehearsal:
        self._panes: dict[int, list[int]] = defaultdict(list)
        self.window_progress = WindowProgress.start(self.window, workers=self.workers)
        for number, batch in enumerate(batches):
            now = self.window_progress.clock(clock[number % len(clock)]) if clock else 0.0
            self._close(self.window_progress.closings(self.window, now=now, operator="op"))
            closed = self.window_progress.closed(self.window, now=now)
            for pane in self.window_progress.touched - closed.touched if self.window.has_panes else ():
                del self._panes[pane]
            self.window_progress = closed
            self._check_nothing_more_is_due(now)
            self._take(batch, now)
        self._close(self.window_progress.finale(self.window, operator="op"))
        return self

    def _take(self, batch: Batch, now: float) -> None:
        reports = []
        for worker, times in enumerate(batch):
            report = self.window_progress.blank(worker)
            rows = np.arange(self.items, self.items + len(times))
            self.items += len(times)
            shares = pa.record_batch({"at": pa.array(times, self.kind), "row": rows})
            for items in (shares.slice(0, len(times) // 3), shares.slice(len(times) // 3)):
                divided = split(self.window, items, now=now, seen=report.seen, workers=self.workers)
                kept, dropped = late(self.window, self.window_progress, divided.parts)
                for part in kept:
                    found = part.items["row"].to_pylist()
                    assert found == sorted(found)
                    self._panes[part.pane] += found
                    for row in found:
                        assert row not in self.kept
                        self.kept[row] = part.pane
                report = report.noting(divided, kept, dropped)
            reports.append(type(report).from_json(json.loads(json.dumps(report.to_json()))))
            self.late += report.late
            self.unplaced += report.unplaced
        after = self.window_progress.after(self.window, reports)
        self.window_progress = WindowProgress.from_json(json.loads(json.dumps(after.to_json())))
        assert self.window_progress == after

    def _close(self, marks: list[Punctuation]) -> None:
        for mark in marks:
            assert mark.window not in self.contents
            panes = range(mark.window - self.window.panes + 1, mark.window + 1)
            self.contents[mark.window] = sorted(row for pane in panes for row in self._panes.get(pane, []))
        self.marks += marks

    def _check_nothing_more_is_due(self, now: float) -> None:
        window_progress, window = self.window_progress, self.window
        assert window_progress.closings(window, now=now) == []
        assert window_progress.closed(window, now=now).touched == window_progress.touched
        waiting = [mark.end for mark in window_progress.finale(window)]
        if window.by == "event" and window_progress.latest is not None:
            assert all(window_progress.latest - window.patience < end for end in waiting)
        if window.by == "processing":
            assert all(now < end for end in waiting)

    def check(self) -> None:
        """Every item is accounted for, and every window with items closed once, in order, with all of them."""
        assert len(self.kept) + self.late + self.unplaced == self.items
        order = [mark.window for mark in self.marks]
        assert order == sorted(set(order))
        wanted: dict[int, list[int]] = defaultdict(list)
        for row, pane in self.kept.items():
            for ending in range(pane, pane + self.window.panes):
                wanted[ending].append(row)
        assert self.contents == {ending: sorted(rows) for ending, rows in wanted.items()}
        for mark in self.marks:
            assert mark.end == self.window.edge(mark.window + 1)
            assert mark.start == self.window.edge(mark.window - self.window.panes + 1)

    def tally(self, batches: Sequence[Batch]) -> dict[int, Counter[float | None]]:
        """The times that each window saw, whatever the numbering of the items."""
        times = [time for batch in batches for share in batch for time in share]
        return {window: Counter(times[row] for row in rows) for window, rows in self.contents.items()}
