"""One operator of a running query: its workers, and what is known of its windows."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from afspark.control import InForce, Protection
from afspark.coordinator.bad_items_noted import BadTally
from afspark.coordinator.convergence import Convergence
from afspark.coordinator.replicas.scheme_change import recall_schemes, recorded_schemes, refuse_change, tolerance_for
from afspark.coordinator.replicas.unit_scheme import Evidence
from afspark.coordinator.worker_group import WorkerGroup
from afspark.errors import UsageError
from afspark.graph.node import Node
from afspark.graph.pipeline import Pipeline
from afspark.graph.reach import reached_from, targets_of
from afspark.model.windows import Punctuation, WindowProgress
from afspark.numbers import Batch, PaneNumber
from afspark.policies import Adaptive, Tolerance
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.resident.residents import Residents
from afspark.store import LedgerEntry, OperatorCounters, OperatorRecord, Rescaled
from afspark.store.quarantine import BadBatch, sum_counts
from afspark.task.stage_inputs import UserCode

LOG = logging.getLogger("afspark")


@dataclass
class OperatorRun:
    """An operator with its workers. ``window_progress`` is as of the last committed batch."""

    node: Node
    group: WorkerGroup
    window_progress: WindowProgress = field(default_factory=WindowProgress)
    counters: OperatorCounters = field(default_factory=OperatorCounters)
    reports: Sequence[TaskReport] = ()
    #: those that take pushed items off the lanes for it: itself, or relays
    entrances: Sequence[OperatorRun] = ()
    #: whether any source of the pipeline is pushed
    is_pushed: bool = False
    #: the user's operators whose items or feedback can reach it
    senders: Sequence[OperatorRun] = ()
    #: pushed items that failures have taken off its lanes: (batch, worker) -> items
    gaps: dict[tuple[int, int], int] = field(default_factory=dict)
    #: by lane, how many items failures of its receivers can have taken; infinite where no number limits it
    receivers: dict[int, float] = field(default_factory=dict)
    bad_so_far: BadTally = field(default_factory=BadTally)
    #: how long its last stage took, as the driver saw it
    stage_seconds: float = 0.0
    #: of an operator that has a model which others train: how that converges
    convergence: Convergence | None = None
    #: how many workers it had before; None: always as many
    rescaled: Rescaled | None = None

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def title(self) -> str:
        """What the user calls the operator."""
        return self.node.title

    @property
    def config(self) -> OperatorConfig:
        return self.group.config

    @property
    def residents(self) -> Residents:
        return Residents(self.config, {member.worker: member.incarnation for member in self.group.members})

    @property
    def work(self) -> UserCode:
        return UserCode(self.node.operator, self.node.keyed, self.node.window)

    @property
    def homes(self) -> dict[int, str]:
        """The host of each worker."""
        return self.group.homes

    # --- schemes --------------------------------------------------------------------------------------------

    def protections(self) -> Mapping[int, InForce]:
        """What protects each worker now; nothing where the tolerance has no barriers."""
        return self.group.secondaries.in_force(self._evidence)

    def protect(self, worker: int, protection: Protection, interval: float | None) -> None:
        """Has ``protection`` with checkpoints so many seconds apart in force for ``worker``, from the next batches on.

        To be called between two batches. Where a secondary has no other host to live on, it waits for one.
        """
        own = self.node.tolerance
        if isinstance(own, Adaptive):
            self._want(own.chosen(protection, interval), [worker])
        else:
            self._want(tolerance_for(protection, interval, gap=own.leaves_gap), [worker])

    def want(self, tolerance: Tolerance, workers: Iterable[int] | None = None) -> None:
        """Has workers, by default all, protected by ``tolerance``; `UsageError` if they cannot be."""
        slots = self.group.cluster.slots_by_host()
        refuse_change(self.group.secondaries, tolerance, slots, pushed=self.is_pushed)
        self._want(tolerance, range(self.node.workers) if workers is None else workers)

    def _want(self, tolerance: Tolerance, workers: Iterable[int]) -> None:
        for worker in workers:
            self.group.want(worker, tolerance, self._evidence)

    @property
    def _evidence(self) -> Evidence:
        versions = [member.version for member in self.group.members]
        return self.group.evidence(Batch(min(versions, default=-1)))

    # --- pushed items ---------------------------------------------------------------------------------------

    def take_stock(self, batch: Batch) -> list[LedgerEntry]:
        """Counts what was missing on the lanes and completes recoveries, once all workers have applied ``batch``."""
        for report in self.reports:
            missing = sum(gap.items for gap in report.gaps)
            if missing or (batch, report.worker) in self.gaps:
                self.gaps[batch, report.worker] = missing
        return self.group.complete(batch, self.reports)

    def lost_items(self, worker: int | None = None) -> int:
        """How many pushed items failures have taken from the operator; or can have taken from one of its workers."""

        def reaches(lane: int) -> bool:
            return worker is None or self.node.keyed or lane % self.node.workers == worker

        lost = [found for entrance in self.entrances for found in entrance._lost_by_lane().items()]
        return sum(items for lane, items in lost if reaches(lane))

    def _lost_by_lane(self) -> dict[int, int]:
        """More than receivers can have lost is missing only where the state went with them, and is counted there."""
        missing = self._missing_by_lane()
        possible = {lane: math.floor(most) for lane, most in self.receivers.items() if math.isfinite(most)}
        return {
            lane: possible[lane]
            if lane in possible and self._loses_state(lane)
            else max(missing[lane], possible.get(lane, 0))
            for lane in {*missing, *possible}
        }

    def _loses_state(self, lane: int) -> bool:
        """Whether what is missing on a lane can have gone with the state of its worker; under an exact policy, if
        another one was in force before.
        """
        if not self.config.stepped or not self.config.exact:
            return self.config.stepped
        counted = self.group.member(lane % self.node.workers).counted_failures
        return any(loss.may_lose for loss in self.group.budget.counted(counted).values())

    def hear_of_receivers(self, lost: Mapping[int, float]) -> None:
        """Notes how many items failures of receivers can have taken, by lane; never less than was known before."""
        for lane, most in lost.items():
            self.receivers[lane] = max(most, self.receivers.get(lane, 0.0))

    def _missing_by_lane(self) -> Counter[int]:
        missing: Counter[int] = Counter()
        for (_, lane), items in list(self.gaps.items()):
            missing[lane] += items
        return missing

    # --- windows --------------------------------------------------------------------------------------------

    def begin_batch(self, now: float, *, ending: bool = False) -> list[Punctuation]:
        """Fixes what the batch at work means for the windows; the windows that end before its items."""
        window = self.node.window
        if window is None:
            self.group.batch_time = BatchTime(now=now)
            return []
        if ending:
            closings = self.window_progress.finale(window, operator=self.name)
            opened = self.window_progress
            if closings:
                opened = WindowProgress(
                    first_open=PaneNumber(max(closing.window for closing in closings) + 1),
                    latest=self.window_progress.latest,
                    seen=self.window_progress.seen,
                )
        else:
            closings = self.window_progress.closings(window, now=now, operator=self.name)
            opened = self.window_progress.closed(window, now=now)
        first = self.window_progress.first_open
        self.group.batch_time = BatchTime(
            window_progress=opened,
            exposed=self.window_progress.touched,
            now=self.window_progress.clock(now),
            needed_from=None if first is None else PaneNumber(first - window.panes + 1),
        )
        return closings

    def end_batch(self) -> None:
        """Takes over what the batch has changed, after it was committed."""
        self.counters = self._counted()
        self.window_progress = self._progress_after() or self.window_progress
        if self.convergence is not None:
            self._converge(self.convergence)

    def _converge(self, convergence: Convergence) -> None:
        """Takes up what the batch has made of the model that others train."""
        trainers = [one for one in self.senders if one.node.operator.training is not None]
        for one in trainers:
            one.tell_differing()
        names = {self.name, *(one.name for one in trainers)}
        convergence.take_up(
            [report.metrics for report in self.reports],
            failures=sum(entry.loss.operator in names for entry in self.group.ledger.entries()),
            learned=sum(report.metrics.get("learned", 0) for one in trainers for report in one.reports),
        )

    def tell_differing(self) -> None:
        """Says which of those who train has learned something else when it repeated a step, where that must not be."""
        training = self.node.operator.training
        if training is None or not training.consistency.in_rounds or not self.config.exact:
            return
        for report in self.reports:
            if steps := report.metrics.get("differing"):
                LOG.warning(
                    "Worker %d of %r has repeated its share of batch %d and learned something else in %d steps. What"
                    " it had learned first is merged, and the model is not what it would have been without the failure:"
                    " a learner that is not deterministic cannot be exact.",
                    report.worker,
                    self.title,
                    self.group.member(report.worker).version,
                    steps,
                )

    def _progress_after(self) -> WindowProgress | None:
        """The windows with the batch at work; None without windows."""
        if self.node.window is None:
            return None
        seen = [report.panes for report in self.reports if report.panes is not None]
        return self.group.batch_time.window_progress.after(self.node.window, seen)

    def _counted(self) -> OperatorCounters:
        """The counters with the batch at work."""
        seen = [report.panes for report in self.reports if report.panes is not None]
        return OperatorCounters(
            late=self.counters.late + sum(report.late for report in seen),
            unplaced=self.counters.unplaced + sum(report.unplaced for report in seen),
            bad=sum_counts((*self.counters.bad, *(count for one in self.left_out for count in one.counts))),
            quarantined=self.counters.quarantined + sum(one.bytes for one in self.left_out),
        )

    @property
    def quarantine_room(self) -> int:
        """How many bytes of bad items each worker may keep in the batch at work."""
        return max(0, self.config.bad.most_bytes - self.counters.quarantined) // self.node.workers

    @property
    def left_out(self) -> list[BadBatch]:
        """What the batch at work has left out."""
        return [bad for report in self.reports for bad in report.bad]

    @property
    def latest_tick(self) -> int | None:
        """The newest tick of a decaying state."""
        window = self.node.window
        return None if window is None or window.has_panes else self.window_progress.tick(window)

    @property
    def first_needed(self) -> int | None:
        """The first pane that an open window needs, as of the last committed batch."""
        window, first = self.node.window, self.window_progress.first_open
        return None if window is None or first is None else first - window.panes + 1

    @property
    def waits(self) -> bool:
        """Whether a window is open that holds items."""
        return self.node.window is not None and bool(self.window_progress.touched)

    # --- what is kept in the commit record ------------------------------------------------------------------

    def record(self) -> OperatorRecord:
        """The operator after the batch at work."""
        return OperatorRecord(
            workers=tuple(member.record(self.group.budget_of(member.worker)) for member in self.group.members),
            window_progress=self._progress_after(),
            counters=self._counted(),
            lost_by_receivers=dict(self.receivers),
            missing_items=dict(self._missing_by_lane()),
            schemes=recorded_schemes(self.group.secondaries),
            rescaled=self.rescaled,
        )

    def recount(self, found: OperatorRecord | None) -> None:
        """Lost items that the record knows and their ledger does not are lost all the same."""
        known = self._missing_by_lane()
        recorded = Counter(found.missing_items if found else {})
        for lane, items in (recorded - known).items():
            self.gaps[-1, lane] = items
        if not recorded <= known:
            LOG.warning(
                "The ledger of items that %s has lost knows %d, its commit record %d: entries are damaged or gone.",
                self.name,
                known.total(),
                recorded.total(),
            )

    def restore(self, found: OperatorRecord | None) -> None:
        """Takes up what the newest record says."""
        if self.node.window is not None:
            self.window_progress = WindowProgress.start(self.node.window, workers=self.node.workers)
        if found is not None:
            self.window_progress = found.window_progress or self.window_progress
            self.hear_of_receivers(found.lost_by_receivers)
            self.counters, self.rescaled = found.counters, found.rescaled
            recall_schemes(self.group.secondaries, found.schemes, self.group.cluster.clock.time())


def chosen_run(runs: Sequence[OperatorRun], name: str | None, pipeline: Pipeline) -> OperatorRun:
    """The run of the operator that the user calls so, without a name the last one; UsageError if there is none."""
    found = [run for run in runs if name in (None, run.title)]
    if not found:
        raise UsageError(
            f"There is no operator {name!r} at work.",
            remedy=f"The pipeline has {', '.join(node.title for node in pipeline.operators)}.",
        )
    return found[-1]


def link(runs: Sequence[OperatorRun], pipeline: Pipeline) -> None:
    """Tells the runs of a pipeline of each other."""
    by_name, targets = {run.name: run for run in runs}, targets_of(pipeline.nodes)
    for run in runs:
        run.is_pushed = bool(pipeline.pushed)
        run.entrances = [by_name[node.name] for node in pipeline.entrances(run.node)]
        run.senders = [by_name[one.name] for one in pipeline.operators if run.name in reached_from(targets, one.name)]
    for run in runs:
        training = run.node.operator.training
        if training is not None:
            model = next(one for one in runs if one.title == training.model)
            theta = float(model.group.budget.tolerance.to_json().get("theta") or 0.0)
            model.convergence = Convergence(training, workers=run.node.workers, theta=theta, name=model.name)
