"""What the driver knows of an operator's windows between two batches, and which of them have ended.

For every batch the driver delivers ``closings`` and drops ``expired`` panes; ``closed`` is the progress by which the
batch's items are judged late or not, and ``after`` the one that goes into the commit record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from afspark.errors import UsageError
from afspark.model.windows.pane_report import PaneReport
from afspark.model.windows.panes import Part
from afspark.model.windows.punctuation import Punctuation
from afspark.model.windows.specs import Window
from afspark.numbers import PaneNumber


@dataclass(frozen=True, kw_only=True)
class WindowProgress:
    """Windows between two batches.

    ``first_open``: windows that end with a lower pane are closed; None before anything was. ``touched``: panes
    that hold items and belong to an open window. ``latest``: greatest time seen by any worker in any batch.
    ``seen``: items taken by each worker, for windows by count.
    """

    first_open: PaneNumber | None = None
    touched: frozenset[PaneNumber] = frozenset()
    latest: float | None = None
    seen: tuple[int, ...] = ()

    @classmethod
    def start(cls, window: Window, *, workers: int) -> WindowProgress:
        """The progress before the first batch; ``UsageError`` if the workers cannot share a pane by count."""
        if window.by != "count":
            return cls()
        window.quota(workers)
        return cls(seen=(0,) * workers)

    def clock(self, now: float) -> float:
        """The time to give a batch: a clock that was set back must not bring items into closed windows."""
        return now if self.latest is None else max(now, self.latest)

    def tick(self, window: Window) -> PaneNumber | None:
        """The newest pane that any worker is known to have reached; None before any."""
        if window.by == "count":
            most = max(self.seen, default=0)
            return PaneNumber((most - 1) // window.quota(len(self.seen))) if most else None
        return None if self.latest is None else window.pane(self.latest)

    def blank(self, worker: int) -> PaneReport:
        """The report that a worker begins its batch with."""
        return PaneReport(worker=worker, seen=self.seen[worker] if self.seen else 0)

    def after(self, window: Window, reports: Iterable[PaneReport]) -> WindowProgress:
        """The progress after a batch that the workers reported on; a worker without a report took nothing."""
        touched, latest, seen = set(self.touched), self.latest, list(self.seen)
        for report in reports:
            touched |= {pane for pane in report.panes if self._is_open(pane)}
            if report.latest is not None:
                latest = report.latest if latest is None else max(latest, report.latest)
            if window.by == "count":
                seen[report.worker] = max(seen[report.worker], report.seen)
        return replace(self, touched=frozenset(touched), latest=latest, seen=tuple(seen))

    def closings(self, window: Window, *, now: float, operator: str = "") -> list[Punctuation]:
        """Windows that ended before the next batch's items: each once, ascending, none without items."""
        bound = self._bound(window, now)
        return [] if bound is None else self._ending(window, bound, operator)

    def closed(self, window: Window, *, now: float) -> WindowProgress:
        """The progress once the closings were delivered and the expired panes dropped."""
        first_open = self._first_open(window, now)
        latest = self.clock(now) if window.by == "processing" else self.latest
        needed = self.touched - self._unneeded(window, first_open)
        return replace(self, first_open=first_open, touched=needed, latest=latest)

    def finale(self, window: Window, *, operator: str = "") -> list[Punctuation]:
        """What the end of the stream closes: every window with items that is still open."""
        return self._ending(window, None, operator)

    def to_json(self) -> dict[str, Any]:
        return {
            "first_open": self.first_open,
            "touched": sorted(self.touched),
            "latest": self.latest,
            "seen": list(self.seen),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> WindowProgress:
        return cls(
            first_open=document["first_open"],
            touched=frozenset(document["touched"]),
            latest=document["latest"],
            seen=tuple(document["seen"]),
        )

    def _is_open(self, pane: PaneNumber) -> bool:
        return self.first_open is None or pane >= self.first_open

    def _bound(self, window: Window, now: float) -> PaneNumber | None:
        """The first pane whose end has not been reached; None if nothing is known yet."""
        if window.by == "processing":
            return window.pane(self.clock(now))
        if window.by == "event":
            return None if self.latest is None else window.pane(self.latest - window.patience)
        if not self.seen:
            raise UsageError(
                "The progress of windows by count must know the number of workers.",
                remedy="Begin with WindowProgress.start(window, workers=...).",
                by=window.by,
            )
        return PaneNumber(min(self.seen) // window.quota(len(self.seen)))

    def _first_open(self, window: Window, now: float) -> PaneNumber | None:
        known = [pane for pane in (self.first_open, self._bound(window, now)) if pane is not None]
        return max(known, default=None)

    def _unneeded(self, window: Window, first_open: PaneNumber | None) -> frozenset[PaneNumber]:
        if first_open is None:
            return frozenset()
        lowest = first_open - window.panes + 1
        return frozenset(pane for pane in self.touched if pane < lowest)

    def _ending(self, window: Window, bound: PaneNumber | None, operator: str) -> list[Punctuation]:
        """Open windows with items that end below ``bound``; only touched panes are looked at, so gaps are free."""
        punctuations = []
        panes, nearest = window.panes, self.first_open
        for pane in sorted(self.touched):
            start = pane if nearest is None else max(pane, nearest)
            stop = pane + panes if bound is None else min(pane + panes, bound)
            for ending in range(start, stop):
                begin, end = window.edge(ending - panes + 1), window.edge(ending + 1)
                punctuations.append(Punctuation(operator, ending, begin, end))
            nearest = PaneNumber(max(start, stop))
        return punctuations


def late(window: Window, progress: WindowProgress, parts: Iterable[Part]) -> tuple[list[Part], int]:
    """The parts whose panes are open, and the number of items in the others.

    ``progress`` is the one after ``closed``. Items of a decaying window are never late.
    """
    if progress.first_open is None or not window.has_panes:
        return list(parts), 0
    kept, dropped = [], 0
    for part in parts:
        if part.pane >= progress.first_open:
            kept.append(part)
        else:
            dropped += part.items.num_rows
    return kept, dropped
