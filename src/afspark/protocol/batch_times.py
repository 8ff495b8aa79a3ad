"""What the driver knows of windows and time before a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from afspark.model.windows import PaneReport, Window, WindowProgress
from afspark.numbers import PaneNumber


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """What a worker of a windowed operator must know of time before a batch.

    Items are judged late by ``window_progress``; ``exposed`` are the panes that a failure would concern now.
    ``now`` is the batch's processing time, fixed by Spark's offset log. Panes below ``needed_from`` can be dropped.
    """

    window_progress: WindowProgress = field(default_factory=WindowProgress)
    exposed: frozenset[PaneNumber] = frozenset()
    now: float = 0.0
    needed_from: PaneNumber | None = None

    def tick(self, window: Window, seen: PaneReport | None) -> PaneNumber | None:
        """The newest pane that is known of, with what a worker has ``seen`` in the batch at work."""
        return self.window_progress.after(window, [] if seen is None else [seen]).tick(window)

    def ended(self, window: Window | None, seen: Sequence[PaneReport]) -> BatchTime:
        """The same when the batch was applied, with what workers have ``seen`` in it."""
        if window is None:
            return self
        progress = self.window_progress.after(window, seen)
        return replace(self, window_progress=progress, exposed=self.exposed | progress.touched)

    def panes_at_risk(self, *, known: bool) -> tuple[PaneNumber | None, PaneNumber | None]:
        """First and last pane that a state lost before the batch at work can have held; None where nobody knows.

        ``known``: the last commit tells which panes hold items, and nothing has been processed since.
        """
        if not known:
            return self.needed_from, None
        return (min(self.exposed), max(self.exposed)) if self.exposed else (PaneNumber(0), PaneNumber(-1))
