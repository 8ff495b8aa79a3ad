"""Lost incarnations of workers: for what their loss is counted, and what tells of one that is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.model.windows import PaneReport, Window
from afspark.numbers import Incarnation, PaneNumber
from afspark.protocol.batch_times import BatchTime


@dataclass(frozen=True)
class CountedLoss:
    """What the loss of an incarnation is counted for: its panes, or the ticks of a decaying window, and the thresholds
    that it was reckoned with (those of a pane that no failure concerned).
    """

    affected: frozenset[PaneNumber] = frozenset()
    theta: Mapping[str, float] = field(default_factory=dict)

    @property
    def may_lose(self) -> bool:
        return any(self.theta.values())

    def reaches(self, theta: Mapping[str, float]) -> bool:
        # Where no thresholds are named, nobody asks how much it was counted for.
        return all(most <= self.theta.get(name, math.inf) for name, most in theta.items())


@dataclass(frozen=True)
class LossEvidence:
    """What the store has of an incarnation in a batch that no record names: it may have confirmed items of it, so its
    loss has to be counted, for what it had ``seen`` of panes and time, at the thresholds it worked under at last.
    """

    incarnation: Incarnation
    seen: PaneReport | None = None
    theta: Mapping[str, float] = field(default_factory=dict)

    @property
    def panes(self) -> frozenset[PaneNumber]:
        return frozenset() if self.seen is None else self.seen.panes

    @property
    def may_lose(self) -> bool:
        """Whether it was allowed to confirm what no backup had."""
        return any(self.theta.values())

    def is_counted(
        self, counted: Mapping[Incarnation, CountedLoss], batch_time: BatchTime, window: Window | None
    ) -> bool:
        """Whether its loss is counted for all of its panes, or at the tick that it had reached or a later one."""
        known = counted.get(self.incarnation)
        if known is None or not known.reaches(self.theta):
            return False
        if window is None or window.has_panes:
            return self.panes <= known.affected
        reached = batch_time.tick(window, self.seen)
        return reached is None or any(tick >= reached for tick in known.affected)
