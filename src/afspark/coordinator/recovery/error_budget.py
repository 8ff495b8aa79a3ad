"""What an operator may lose: which thresholds are in force for its workers, and what failures have cost. Pure.

Without windows every failure of a worker counts for ever. With hopping and sliding windows a threshold belongs to
a pane, and a failure counts for the panes that were open at its moment; a decaying state forgets by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from afspark.bounds import Failure, Place, Thresholds, Windowing, decayed, failures_in_force, halved, realised
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.model.state_label import StateLabel
from afspark.model.states import StateSpec
from afspark.model.windows import Window
from afspark.numbers import FIRST_TICK, Batch, Incarnation, PaneNumber
from afspark.policies import BackupNeed, BackupPlan, Tolerance, losses_add_up, thresholds_in_force
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.losses import CountedLoss, LossEvidence
from afspark.store import CompactionRule, CountedFailure

CountedFailures = Sequence[CountedFailure]


def once(per_worker: Sequence[CountedFailures]) -> list[CountedFailures]:
    """The failures of all workers without those that they share with a worker before them."""
    known: set[str] = set()
    found: list[CountedFailures] = []
    for counted_failures in per_worker:
        found.append([failure for failure in counted_failures if failure.shared not in known])
        known |= {failure.shared for failure in counted_failures if failure.shared}
    return found


@dataclass(frozen=True, kw_only=True)
class ErrorBudget:
    """Tolerance, states, place and window of an operator."""

    tolerance: Tolerance
    states: Mapping[str, StateSpec]
    place: Place
    window: Window | None = None
    compaction: CompactionRule = field(default_factory=CompactionRule)

    @classmethod
    def of(cls, pipeline: Pipeline, node: Node) -> ErrorBudget:
        """What a pipeline grants one of its operators."""
        rule, longest = CompactionRule(), node.tolerance.longest_chain
        return cls(
            tolerance=node.tolerance,
            states=node.operator.states(),
            place=pipeline.place(node),
            window=node.window,
            compaction=rule if longest is None else replace(rule, longest=min(longest, rule.longest)),
        )

    @property
    def workers(self) -> int:
        return self.place.workers

    @property
    def paned(self) -> bool:
        """Whether every pane has states, and so thresholds, of its own."""
        return self.window is not None and self.window.has_panes

    @property
    def decaying(self) -> bool:
        """Whether states fade, so that losses do."""
        return self.window is not None and not self.window.has_panes

    @property
    def _panes(self) -> int:
        return 1 if self.window is None else self.window.panes

    # --- thresholds -----------------------------------------------------------------------------------------

    def thresholds(self, counted_failures: CountedFailures, pane: PaneNumber | None = None) -> Thresholds:
        """Everything in force for a worker with these failures (for one pane), and why."""
        return thresholds_in_force(
            self.tolerance,
            self.states,
            failures=self._counted(counted_failures, pane),
            place=replace(self.place, panes=self._panes),
            decaying=self.decaying,
        )

    def theta(self, counted_failures: CountedFailures, pane: PaneNumber | None = None) -> dict[str, float]:
        """Thresholds per state; with panes and without ``pane``: those of a pane that no failure concerns."""
        return dict(self.thresholds(counted_failures, pane).theta)

    def pane_thetas(self, counted_failures: CountedFailures) -> dict[PaneNumber, dict[str, float]]:
        """Thresholds of the panes that failures count for."""
        return {pane: self.theta(counted_failures, pane) for pane in self._affected(counted_failures)}

    def items(self, counted_failures: CountedFailures) -> float:
        """l: how many feedback items may wait without a backup."""
        return self.tolerance.items_allowance(failures=len(counted_failures), place=self.place, decaying=self.decaying)

    def backup_plan(
        self, batch: Batch, counted_failures: CountedFailures, *, full: bool, recheck: bool, barrier: bool = True
    ) -> BackupPlan:
        """What a worker with these failures has to write in a batch."""
        need = BackupNeed(
            batch=batch,
            theta=self.theta(counted_failures),
            pane_theta=self.pane_thetas(counted_failures),
            items=self.items(counted_failures),
            full=full,
            recheck=recheck,
            barrier=barrier,
        )
        return self.tolerance.backup_plan(need)

    def flush_plan(self, batch: Batch, *, full: bool) -> BackupPlan:
        """What a worker has to write after ``batch`` if none follows."""
        return self.tolerance.flush_plan(BackupNeed(batch=batch, theta=dict.fromkeys(self.states, 0.0), full=full))

    def _counted(self, counted_failures: CountedFailures, pane: PaneNumber | None) -> int:
        if self.paned and pane is None:
            return 0
        # Without panes all there is counts as one that never closes.
        ranges = [failure.panes if self.paned else (0, 0) for failure in counted_failures if failure.may_take]
        failures = [Failure(*panes) for panes in ranges if panes is not None]
        return failures_in_force(self.window.kind if self.window else Windowing.NONE, failures, pane or 0, self._panes)

    def _affected(self, counted_failures: CountedFailures) -> list[PaneNumber]:
        """Panes that failures concern, and those whose windows reach back to one."""
        affected = {pane for failure in counted_failures for pane in failure.affected}
        return sorted({PaneNumber(pane + later) for pane in affected for later in range(self._panes)})

    # --- losses ---------------------------------------------------------------------------------------------

    def count_failure(
        self,
        counted_failures: CountedFailures,
        batch_time: BatchTime,
        trace: LossEvidence,
        older: Mapping[str, float] | None = None,
    ) -> CountedFailure:
        """The record of the loss of an incarnation, of which ``trace`` is known besides what the batch's time says.

        The loss of an incarnation may be counted again, for panes, a time or thresholds that nobody knew of the first
        time: then only what it has lost more is added. ``older``: thresholds that were in force when its last backup
        was made, if they were higher.
        """
        before = [failure for failure in counted_failures if failure.incarnation < trace.incarnation]
        higher = {name: max((older or {}).get(name, 0.0), trace.theta.get(name, 0.0)) for name in self.states}
        tick = self._tick(batch_time, trace)
        known = self._known(counted_failures, trace.incarnation, tick)
        theta = {name: max(most, higher[name]) for name, most in self.theta(before).items()}
        if not self.paned:
            taken = {
                name: max(0.0, most - known.get(StateLabel(name), 0.0))
                for name, most in self._taken(before, higher, None).items()
            }
            return CountedFailure(taken=taken, tick=tick, incarnation=trace.incarnation, theta=theta)
        by_pane: dict[PaneNumber, dict[str, float]] = {}
        for pane in trace.panes | batch_time.exposed:
            for name, most in self._taken(before, higher, pane).items():
                already = known.get(StateLabel(name, pane), -1.0)
                if most > already:
                    by_pane.setdefault(pane, {})[name] = most - max(0.0, already)
        return CountedFailure(
            pane_taken=by_pane,
            panes=(min(by_pane), max(by_pane)) if by_pane else None,
            incarnation=trace.incarnation,
            theta=theta,
        )

    def _tick(self, batch_time: BatchTime, trace: LossEvidence) -> PaneNumber:
        """The tick that a loss is counted for: of a decaying state the newest, of one that does not fade the first."""
        if self.window is None or self.window.has_panes:
            return FIRST_TICK
        return batch_time.tick(self.window, trace.seen) or FIRST_TICK

    def _known(self, counted_failures: CountedFailures, incarnation: Incarnation, tick: int) -> dict[StateLabel, float]:
        """What the loss of an incarnation is counted for already; of a decaying state, what is left at ``tick``."""
        decay = 1.0 if self.window is None else self.window.kept_per_tick
        found: dict[StateLabel, float] = {}
        for failure in counted_failures:
            if failure.incarnation == incarnation:
                age = max(0, tick - failure.tick)
                for label, most in failure.labelled().items():
                    found[label] = found.get(label, 0.0) + decayed([(age, most)], decay)
        return found

    def _taken(
        self, counted_failures: CountedFailures, older: Mapping[str, float], pane: PaneNumber | None
    ) -> dict[str, float]:
        """What the loss of a worker with these failures before it is reckoned to take, by state.

        Without a threshold that is no number, and the ledger's entry says that no bound covers the loss.
        """
        halvings = self._counted(counted_failures, pane) if self.paned else 0
        theta = self.theta(counted_failures, pane)
        most = {name: max(limit, halved(older.get(name, 0.0), halvings)) for name, limit in theta.items()}
        return {name: limit if math.isfinite(limit) else 0.0 for name, limit in most.items()}

    def last_loss(self, counted_failures: CountedFailures) -> dict[str, float]:
        """What the newest failure may have taken, as operators are told."""
        return counted_failures[-1].told() if counted_failures else dict.fromkeys(self.states, 0.0)

    def missing(self, counted_failures: CountedFailures, tick: int | None = None) -> dict[str, float]:
        """What all failures may have taken from a state without panes; of a decaying one, what is left at ``tick``."""
        decay = self.window.kept_per_tick if self.window is not None and tick is not None else 1.0
        # A tick that ended before the failure is shown as it is after it.
        ages = [(max(0, (tick or 0) - failure.tick), failure.taken) for failure in counted_failures]
        return {name: decayed(((age, taken.get(name, 0.0)) for age, taken in ages), decay) for name in self.states}

    def pane_missing(self, counted_failures: CountedFailures) -> dict[PaneNumber, dict[str, float]]:
        """What failures may have taken from the states of each pane they concern."""
        found: dict[PaneNumber, dict[str, float]] = {}
        for failure in counted_failures:
            for pane, taken in failure.pane_taken.items():
                totals = found.setdefault(pane, dict.fromkeys(self.states, 0.0))
                for state, most in taken.items():
                    totals[state] += most
        return found

    def missing_now(self, counted_failures: CountedFailures, tick: int | None = None) -> dict[str, float]:
        """What failures may have taken from all that is resident: with panes, from all of them together."""
        if not self.paned:
            return self.missing(counted_failures, tick)
        panes = self.pane_missing(counted_failures)
        return {name: math.fsum(taken[name] for taken in panes.values()) for name in self.states}

    def window_missing(self, counted_failures: CountedFailures, window: int) -> dict[str, float]:
        """What failures may have taken from the window that ends with pane ``window``."""
        if self.decaying:
            return self.missing(counted_failures, tick=window)
        panes = self.pane_missing(counted_failures)
        first = window - self._panes + 1
        return {
            name: math.fsum(taken[name] for pane, taken in panes.items() if first <= pane <= window)
            for name in self.states
        }

    def remembered(self, counted_failures: CountedFailures, batch_time: BatchTime) -> tuple[CountedFailure, ...]:
        """The failures that still matter: not those whose panes no open window needs."""
        first = batch_time.needed_from
        if not self.paned or first is None:
            return tuple(counted_failures)
        # A sliding window reaches back; thresholds of new panes depend on failures inside their window.
        return tuple(failure for failure in counted_failures if failure.panes is None or failure.panes[1] >= first)

    def realised(
        self, per_worker: Sequence[CountedFailures], *, window: int | None = None, tick: int | None = None
    ) -> dict[str, float]:
        """Per state, the most that the failures so far can have changed it (in one window); 0 before any."""

        def missing(counted_failures: CountedFailures) -> dict[str, float]:
            if window is None:
                return self.missing(counted_failures, tick)
            return self.window_missing(counted_failures, window)

        return {name: self._in_all(name, missing, per_worker) for name in self.states}

    def adds_up(self, state: str) -> bool:
        """Whether the losses of different workers add up in a state."""
        return losses_add_up(self.states[state], self.place)

    def _in_all(
        self,
        state: str,
        missing: Callable[[CountedFailures], Mapping[str, float]],
        per_worker: Sequence[CountedFailures],
    ) -> float:
        """What the losses of all workers come to in a state, given what those of one come to."""
        adds_up = self.adds_up(state)
        counted = once(per_worker) if adds_up else per_worker
        return realised([missing(one)[state] for one in counted], adds_up=adds_up)

    def pane_sum(self, per_worker: Sequence[CountedFailures]) -> dict[str, float]:
        """Like `realised`, for all panes that still matter taken together: no window can have lost more."""
        panes = {pane for counted_failures in per_worker for pane in self.pane_missing(counted_failures)}
        bounds = dict.fromkeys(self.states, 0.0)
        for pane in panes:
            for name, most in self.in_pane(pane, per_worker).items():
                bounds[name] += most
        return bounds

    def in_pane(self, pane: PaneNumber, per_worker: Sequence[CountedFailures]) -> dict[str, float]:
        """What the losses of all workers come to in one pane, by state."""
        none = dict.fromkeys(self.states, 0.0)

        def missing(counted_failures: CountedFailures) -> Mapping[str, float]:
            return self.pane_missing(counted_failures).get(pane, none)

        return {name: self._in_all(name, missing, per_worker) for name in self.states}

    def failures_in(self, counted_failures: CountedFailures, pane: PaneNumber | None = None) -> int:
        """How many failures of a worker halve its thresholds (of a pane)."""
        return self._counted(counted_failures, pane)

    def concerned(self, per_worker: Sequence[CountedFailures]) -> list[PaneNumber]:
        """The panes whose thresholds the failures of any worker concern."""
        return sorted({pane for counted_failures in per_worker for pane in self._affected(counted_failures)})

    def counted(self, counted_failures: CountedFailures) -> dict[Incarnation, CountedLoss]:
        """The incarnations whose losses are counted, and for what."""
        found: dict[Incarnation, CountedLoss] = {}
        for failure in counted_failures:
            affected = frozenset({failure.tick}) if self.decaying else failure.affected
            known = found.get(failure.incarnation, CountedLoss())
            theta = {name: max(most, known.theta.get(name, 0.0)) for name, most in failure.theta.items()}
            found[failure.incarnation] = CountedLoss(known.affected | affected, theta)
        return found
