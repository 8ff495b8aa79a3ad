"""One operator of a running query: its workers, and what is known of its windows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from afspark.model.windows import Agenda, Decaying, Punctuation, needs_rebase, scale
from afspark.runtime.orders import Calendar, Mission, Report
from afspark.runtime.pipeline import Node
from afspark.runtime.progress import Counters
from afspark.runtime.segment.reading import Residents
from afspark.runtime.stages import Work
from afspark.runtime.workforce import Workforce


@dataclass
class Crew:
    """An operator with its workforce. ``agenda`` is as of the last committed batch."""

    node: Node
    workforce: Workforce
    agenda: Agenda = field(default_factory=Agenda)
    #: tick in whose units a decaying state is kept
    base: int | None = None
    counters: Counters = field(default_factory=Counters)
    reports: Sequence[Report] = ()
    #: pushed items that failures have taken, by worker
    lost_items: Counter[int] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def mission(self) -> Mission:
        return self.workforce.mission

    @property
    def residents(self) -> Residents:
        return Residents(self.mission, tuple(member.incarnation for member in self.workforce.members))

    @property
    def work(self) -> Work:
        return Work(self.node.operator, self.node.keyed, self.node.window)

    @property
    def homes(self) -> tuple[str, ...]:
        return tuple(self.workforce.homes)

    def lose_items(self, worker: int, items: int, *, damaged: bool = False) -> None:
        """Counts pushed items that are missing at a worker.

        More than receivers may hold without backup can only be missing because the state was lost as well, and that
        loss is counted already; unless their log is ``damaged``.
        """
        most = math.inf if damaged else max(self.lost_items[worker], self.workforce.terms.most_lost_items())
        self.lost_items[worker] = math.floor(min(self.lost_items[worker] + items, most))

    # --- windows --------------------------------------------------------------------------------------------

    def open_day(self, now: float, *, ending: bool = False) -> list[Punctuation]:
        """Fixes what the batch at work means for the windows; the windows that end before its items."""
        window = self.node.window
        if window is None:
            self.workforce.calendar = Calendar(now=now)
            return []
        if ending:
            closings = self.agenda.finale(window, operator=self.name)
            opened = self.agenda
            if closings:
                opened = Agenda(
                    first_open=max(closing.window for closing in closings) + 1,
                    latest=self.agenda.latest,
                    seen=self.agenda.seen,
                )
        else:
            closings = self.agenda.closings(window, now=now, operator=self.name)
            opened = self.agenda.closed(window, now=now)
        first = self.agenda.first_open
        base, rescale = self._base(now)
        self.workforce.calendar = Calendar(
            agenda=opened,
            exposed=self.agenda.touched,
            now=self.agenda.clock(now),
            needed_from=None if first is None else first - window.panes + 1,
            base=base,
            rescale=rescale,
        )
        return closings

    def close_day(self) -> None:
        """After the batch was committed."""
        window, calendar = self.node.window, self.workforce.calendar
        if window is None:
            return
        seen = [report.panes for report in self.reports if report.panes is not None]
        self.agenda = calendar.agenda.after(window, seen)
        self.base = calendar.base
        self.counters = self._counted()

    def _counted(self) -> Counters:
        """The counters with the batch at work."""
        seen = [report.panes for report in self.reports if report.panes is not None]
        return Counters(
            late=self.counters.late + sum(report.late for report in seen),
            unplaced=self.counters.unplaced + sum(report.unplaced for report in seen),
        )

    def _base(self, now: float) -> tuple[int, float]:
        window = self.node.window
        if not isinstance(window, Decaying):
            return 0, 1.0
        known = now if window.by == "processing" else self.agenda.latest
        tick = 0 if known is None else window.pane(known)
        if self.base is None:
            return tick, 1.0
        if needs_rebase(window, tick, self.base):
            return tick, scale(window, tick, self.base)
        return self.base, 1.0

    @property
    def latest_tick(self) -> int | None:
        """The newest tick of a decaying state."""
        window, latest = self.node.window, self.agenda.latest
        return window.pane(latest) if isinstance(window, Decaying) and latest is not None else None

    @property
    def first_needed(self) -> int | None:
        """The first pane that an open window needs, as of the last committed batch."""
        window, first = self.node.window, self.agenda.first_open
        return None if window is None or first is None else first - window.panes + 1

    @property
    def waits(self) -> bool:
        """Whether a window is open that holds items."""
        return self.node.window is not None and bool(self.agenda.touched)

    # --- what is kept in the commit record ------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        calendar, window = self.workforce.calendar, self.node.window
        agenda = self.agenda
        if window is not None:
            agenda = calendar.agenda.after(window, [one.panes for one in self.reports if one.panes is not None])
        return {"agenda": agenda.to_json(), "base": calendar.base if window else None, **self._counted().to_json()}

    def restore(self, found: Mapping[str, Any] | None) -> None:
        window = self.node.window
        if window is not None:
            self.agenda = Agenda.start(window, workers=self.node.workers)
        if found is not None:
            self.agenda = Agenda.from_json(found["agenda"])
            self.base = found["base"]
            self.counters = Counters.from_json(found)
