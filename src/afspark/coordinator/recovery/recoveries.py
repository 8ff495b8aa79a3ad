"""The losses of an operator's workers: each is declared in the ledger, and completed there once its worker is whole.

A loss is durable before its recovery begins, and complete before anybody is told a bound.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.recovery.recovery_timings import RecoveryTimings
from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.numbers import NO_INCARNATION, Batch
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Restored, TaskReport
from afspark.store import Ledger, LedgerEntry, Loss, Recovery

LOG = logging.getLogger("afspark")

#: What a chain with a hole lacks.
UNNAMED = "backups that only unreadable records have named"


class Recoveries:
    """The recoveries of one operator that are under way, from the loss to the ledger's word that it is made good."""

    def __init__(self, config: OperatorConfig, budget: ErrorBudget, ledger: Ledger, timings: RecoveryTimings) -> None:
        self.config, self.budget, self.ledger, self.timings = config, budget, ledger, timings
        #: damaged records that were passed over when the driver started, until its first batch is applied
        self.gap: tuple[str, ...] = ()
        self._under_way: dict[int, Loss] = {}
        self._restored: dict[int, Restored] = {}
        self._passed_over: dict[int, tuple[str, ...]] = {}
        #: how many batches were applied again, with how many items, and how long that took
        self._replayed: dict[int, tuple[int, int, float]] = {}

    @property
    def losses(self) -> list[Loss]:
        """All losses of the operator that the ledger knows."""
        name = self.config.operator_name
        return [entry.loss for entry in self.ledger.entries() if entry.loss.operator == name]

    def take_up(self, members: Mapping[int, WorkerState], damaged: Sequence[str]) -> None:
        """Goes on with losses that an earlier driver declared for the present incarnations and did not see made good.

        ``damaged`` names what was passed over to reach the record that this driver starts from. A loss that had been
        made good from what is damaged now, and whose worker has to be recovered once more, is told once more.
        """
        self.gap = tuple(damaged)
        name = self.config.operator_name
        self._under_way = {}
        for entry in self.ledger.entries():
            # Entries about the operator as a whole are of no worker.
            member = members.get(entry.loss.worker) if entry.loss.operator == name else None
            if member is None or member.incarnation != entry.loss.incarnation + 1:
                continue
            if entry.recovery is None or (damaged and member.hint is Hint.RECOVER):
                self._under_way[member.worker] = entry.loss
        self._passed_over = {
            worker: self.gap or ((UNNAMED,) if members[worker].restart_chain else ()) for worker in self._under_way
        }

    def declare(
        self,
        member: WorkerState,
        batch: Batch,
        cause: str,
        *,
        budget: ErrorBudget,
        home: str,
        batch_time: BatchTime,
        trace: LossEvidence | None = None,
        durable: DurableState | None = None,
    ) -> WorkerState:
        """Makes the loss of a worker durable and returns its next incarnation, which will live at ``home``.

        ``budget``: what it might lose.
        """
        successor = member.lost(budget, home, batch_time, trace, durable)
        counted = successor.failures > member.failures
        loss = Loss(
            batch=batch,
            operator=self.config.operator_name,
            worker=member.worker,
            incarnation=member.incarnation,
            counted=counted,
            cause=cause,
            theta=budget.theta(member.counted_failures) | dict(member.older_theta or {}),
            failures=member.failures,
            counted_failure=successor.counted_failures[-1] if counted else None,
            # Items of an incarnation that completed nothing are in the entry of the one before it.
            items=successor.lost_items if counted else 0,
            gap_batches=0 if durable is None else durable.gap_batches,
            gap_items=0 if durable is None else durable.gap_items,
            thresholds=budget.thresholds(member.counted_failures),
        )
        self._under_way[member.worker] = self.ledger.declare(loss)
        self._restored.pop(member.worker, None)
        self._replayed.pop(member.worker, None)
        holed = member.restart_chain if durable is None else durable.hole
        self._passed_over[member.worker] = self.gap or ((UNNAMED,) if holed else ())
        return successor

    def hear(self, reports: Iterable[TaskReport]) -> None:
        """Remembers who was restored: a state may be restored in one try, and the batch applied in a later one."""
        for report in reports:
            if report.restored is not None:
                self._restored[report.worker] = report.restored
            self.timings.hear(report)

    def replayed(self, report: TaskReport, seconds: float) -> None:
        """A worker has applied a batch once more; what it has met on the way is told when it has all of them.

        One that is not being recovered has only said again what it had done.
        """
        if report.worker not in self._under_way:
            return
        batches, items, before = self._replayed.get(report.worker, (0, 0, 0.0))
        if report.restored is not None:
            # The stage that has given it its state took what it takes to get there. Its own work alone was a replay.
            seconds = min(seconds, report.work.seconds + report.work.backup_seconds)
        self._replayed[report.worker] = (batches + 1, items + report.work.items, before + seconds)
        if report.damaged:
            known = self._passed_over.get(report.worker, ())
            self._passed_over[report.worker] = tuple(dict.fromkeys((*known, *report.damaged)))

    def complete(
        self, batch: Batch, reports: Iterable[TaskReport], batch_time: BatchTime, *, now: float
    ) -> list[LedgerEntry]:
        """Completes the recoveries of workers that have their state now, and returns them."""
        finished = []
        for report in reports:
            loss = self._under_way.pop(report.worker, None) or self._met_again(batch, report)
            if loss is not None:
                finished.append(self._complete(loss, report, batch_time, now))
        return finished

    def _met_again(self, batch: Batch, report: TaskReport) -> Loss | None:
        """The loss whose recovery met damage that no entry has; None if there is no such damage.

        A driver may have died between the end of a recovery and its commit. What follows is a second recovery of the
        same loss; or of none, if it died before its first record.
        """
        own = [
            entry
            for entry in self.ledger.entries()
            if (entry.loss.operator, entry.loss.worker) == (self.config.operator_name, report.worker)
        ]
        known = {name for entry in own if entry.recovery for name in entry.recovery.damaged}
        if known.issuperset(report.damaged):
            return None
        if own:
            return own[-1].loss
        return self.ledger.declare(
            Loss(
                batch=batch,
                operator=self.config.operator_name,
                worker=report.worker,
                incarnation=NO_INCARNATION,
                counted=False,
                cause="it was lost in its first batch",
                theta={},
                failures=0,
            )
        )

    def _complete(self, loss: Loss, report: TaskReport, batch_time: BatchTime, now: float) -> LedgerEntry:
        damaged = (*self._passed_over.pop(report.worker, ()), *report.damaged)
        batches, items, replaying = self._replayed.pop(report.worker, (0, 0, 0.0))
        measured = self.timings.completed(report, self._restored.get(report.worker), replaying, items)
        restored = self._restored.pop(report.worker, Restored(seconds=0.0, cells=0))
        if damaged:
            LOG.warning(
                "Worker %d was recovered from an older backup, because %s cannot be read: "
                "the promised bound does not cover this loss.",
                report.worker,
                ", ".join(damaged),
            )
        # What was taken off a lane within a batch, or in batches whose records are lost, may have opened any pane.
        known = not self.config.pushed and damaged == report.damaged
        at_risk = damaged and self.budget.paned
        recovery = Recovery(
            seconds=restored.seconds,
            restored_cells=restored.cells,
            damaged=damaged,
            gap_seconds=now - loss.at,
            host=report.host,
            items_behind=report.behind,
            replayed=batches,
            replay_seconds=replaying,
            panes=batch_time.panes_at_risk(known=known) if at_risk else (None, None),
            account=measured.to_json() if measured else {},
        )
        return self.ledger.complete(loss, recovery)
