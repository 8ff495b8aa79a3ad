"""What users are promised of a pushed stream, checked against every item that was ever sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from afspark.coordinator import told_bounds as assurance
from afspark.coordinator.batch_loop import Coordinator
from afspark.coordinator.operator_run import OperatorRun
from afspark.model.distances import distance
from afspark.model.windows import Decaying, Window
from afspark.policies import Approximate, Tolerance
from tests.simulation.invariants import ROUNDING
from tests.simulation.pushed.producers import Item, Ledger
from tests.simulation.pushed.program import NAME, STATE, cell_of
from tests.simulation.pushed.schedule import PushedSchedule
from tests.simulation.truth import Cells

Positions = Mapping[int, Mapping[str, int]]
"""By lane and session: the end of what was taken."""


class Truth:
    """What a run without failures has made of the items taken so far."""

    def __init__(self, schedule: PushedSchedule, ledger: Ledger) -> None:
        self.schedule, self.ledger = schedule, ledger
        #: by lane, session and number: the pane an item belongs to, None if it came too late for it
        self._panes: dict[tuple[int, str], list[int | None]] = {}
        self._counted = 0

    def take(self, positions: Positions, run: OperatorRun) -> None:
        """A batch is over; items are judged by the window progress that it began with."""
        for place, item in self._fresh(positions):
            self._panes.setdefault(place, []).append(self._pane(item, run))

    def cells(self, positions: Positions, run: OperatorRun) -> dict[int, Cells]:
        """By pane, of everything below the positions; the window progress that the batch at work began with judges
        its items.
        """
        panes: dict[int, Cells] = {}
        for place, known in self._panes.items():
            end = positions.get(place[0], {}).get(place[1], 0)
            for item, pane in zip(self.ledger.sent[place][:end], known[:end], strict=False):
                self._add(panes, pane, item)
        counted = self._counted
        for _, item in self._fresh(positions):
            self._add(panes, self._pane(item, run), item)
        self._counted = counted
        return panes

    def _fresh(self, positions: Positions) -> Iterable[tuple[tuple[int, str], Item]]:
        for lane, ends in positions.items():
            for session, end in ends.items():
                sent = self.ledger.sent.get((lane, session))
                if sent is None:
                    continue  # it has sent nothing, or it is no session
                assert end <= len(sent), f"lane {lane} was taken to {end} of {session}, which sent {len(sent)}"
                for item in sent[len(self._panes.get((lane, session), ())) : end]:
                    yield (lane, session), item

    def _add(self, panes: dict[int, Cells], pane: int | None, item: Item) -> None:
        if pane is not None:
            cells, cell = panes.setdefault(pane, {}), cell_of(self.schedule.table, item)
            cells[cell] = cells.get(cell, 0) + item.value

    def _pane(self, item: Item, run: OperatorRun) -> int | None:
        window: Window | None = self.schedule.window
        if window is None:
            return 0
        batch_time = run.group.batch_time
        if window.by == "count":
            self._counted += 1
            pane = (self._counted - 1) // int(window.size)
        else:
            pane = window.pane(item.at if window.by == "event" else batch_time.now)
        first = batch_time.window_progress.first_open
        return None if first is not None and pane < first and not isinstance(window, Decaying) else pane


def told(engine: Coordinator, window: int | None = None) -> float:
    """The bound that users are told: of all that is resident, or of one window."""
    return assurance.told(engine.operator(NAME), window)[STATE]


class Promise:
    """What holds whatever fails, for the policies that the query has had so far."""

    def __init__(self, schedule: PushedSchedule) -> None:
        self.schedule = schedule
        self._had: list[Tolerance] = []
        self.destroyed = False

    def add(self, tolerance: Tolerance) -> None:
        self._had.append(tolerance)

    @property
    def most(self) -> float:
        """The largest error; infinite where none is promised."""
        if math.isinf(self.items):
            return math.inf
        theta = max(one.theta if isinstance(one, Approximate) else 0.0 for one in self._had)
        return theta + self.items * self.schedule.alpha

    @property
    def logs(self) -> bool:
        """Whether every item was in the log before a worker got it."""
        return all(one.logs_first for one in self._had)

    @property
    def recovers(self) -> bool:
        return all(one.needs_records for one in self._had)

    @property
    def items(self) -> float:
        """How many acknowledged items may be lost."""
        if not self.recovers:
            return math.inf
        had = [one for one in self._had if isinstance(one, Approximate)]
        return max((math.inf if one.items_seconds is not None else one.items for one in had), default=0.0)

    def check(self, got: Cells, true: Cells, bound: float, where: str, *, single: bool = True) -> float:
        """Observed ≤ told ≤ promised. ``single``: of one state or window, which is what a promise is about."""
        true = {key: value for key, value in true.items() if value}
        got = {key: value for key, value in got.items() if value}
        apart = distance(self.schedule.divergence, got, true)
        assert apart <= bound * (1 + ROUNDING) + ROUNDING, f"{where}: off by {apart}, told {bound}: {_apart(got, true)}"
        over = {key: value for key, value in got.items() if value > true.get(key, 0) * (1 + ROUNDING)}
        # After a leap of time a backup may hold cells that have not faded yet, within θ like every other difference.
        leapt = isinstance(self.schedule.window, Decaying) and self.schedule.leap > 0
        # Where items are gone that no bound covers, those after them move into earlier windows by count.
        moved = self.schedule.window is not None and self.schedule.window.by == "count" and bound == math.inf
        assert leapt or moved or not over, f"{where}: counted more than once: {_apart(got, true)}"
        if self.destroyed or not self.recovers:
            return apart
        assert math.isfinite(bound), f"{where}: told {bound}, although every loss is covered"
        if single and not isinstance(self.schedule.window, Decaying):
            assert bound <= self.most * (1 + ROUNDING), f"{where}: told {bound}, promised {self.most}"
        return apart

    def check_losses(self, engine: Coordinator, ledger: Ledger, unnoticed: int = 0) -> None:
        """Lost items are within what is told, that is within L, and each was acknowledged."""
        told = engine.operator(NAME).lost_items()
        assert told <= self.items, f"{told} items are told to be lost, {self.items} may be"
        if unnoticed and math.isfinite(self.items):
            lost = unnoticed + sum(loss.end - loss.first for loss in engine.item_losses.entries())
            assert lost <= told, f"{lost} items are lost, {told} are told"
        for loss in engine.item_losses.entries():
            acked = ledger.acked.get((loss.worker, loss.producer), 0)
            assert loss.end <= acked, f"{loss} was never acknowledged: {acked}"


def _apart(got: Cells, true: Cells) -> str:
    different = {key: (got.get(key, 0), true.get(key, 0)) for key in got.keys() | true.keys()}
    return str({key: pair for key, pair in sorted(different.items()) if pair[0] != pair[1]})
