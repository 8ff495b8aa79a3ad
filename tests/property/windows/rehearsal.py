"""A stream driven through windows as the engine does it, with everything written down."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from afspark.model.windows import Agenda, Punctuation, Window, late, split

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
        self.agenda = Agenda.start(self.window, workers=self.workers)
        for number, batch in enumerate(batches):
            now = self.agenda.clock(clock[number % len(clock)]) if clock else 0.0
            self._close(self.agenda.closings(self.window, now=now, operator="op"))
            for pane in self.agenda.expired(self.window, now=now):
                del self._panes[pane]
            self.agenda = self.agenda.closed(self.window, now=now)
            self._check_nothing_more_is_due(now)
            self._take(batch, now)
        self._close(self.agenda.finale(self.window, operator="op"))
        return self

    def _take(self, batch: Batch, now: float) -> None:
        reports = []
        for worker, times in enumerate(batch):
            report = self.agenda.blank(worker)
            rows = np.arange(self.items, self.items + len(times))
            self.items += len(times)
            shares = pa.record_batch({"at": pa.array(times, self.kind), "row": rows})
            for items in (shares.slice(0, len(times) // 3), shares.slice(len(times) // 3)):
                divided = split(self.window, items, now=now, seen=report.seen, workers=self.workers)
                kept, dropped = late(self.window, self.agenda, divided.parts)
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
        after = self.agenda.after(self.window, reports)
        self.agenda = Agenda.from_json(json.loads(json.dumps(after.to_json())))
        assert self.agenda == after

    def _close(self, marks: list[Punctuation]) -> None:
        for mark in marks:
            assert mark.window not in self.contents
            panes = range(mark.window - self.window.panes + 1, mark.window + 1)
            self.contents[mark.window] = sorted(row for pane in panes for row in self._panes.get(pane, []))
        self.marks += marks

    def _check_nothing_more_is_due(self, now: float) -> None:
        agenda, window = self.agenda, self.window
        assert agenda.closings(window, now=now) == [] and agenda.expired(window, now=now) == frozenset()
        waiting = [mark.end for mark in agenda.finale(window)]
        if window.by == "event" and agenda.latest is not None:
            assert all(agenda.latest - window.patience < end for end in waiting)
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
