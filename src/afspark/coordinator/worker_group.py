"""The workers of a query over its batches: where they live, what they lost, what the ledger was told."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from afspark.cluster.cluster import Cluster
from afspark.coordinator.placement import spread
from afspark.coordinator.recovery.discovery import find_survivors, restore_workers
from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.coordinator.worker_state import Verdict, WorkerState, judge
from afspark.errors import CheckpointError
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import LossEvidence
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.punctuation_plan import PunctuationPlan
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.store import CommitRecord, Ledger, LedgerEntry, Loss

LOG = logging.getLogger("afspark")


class WorkerGroup:
    """Carries out what `worker_state` concludes. A loss is durable in the ledger before a recovery begins."""

    def __init__(
        self,
        cluster: Cluster,
        config: OperatorConfig,
        budget: ErrorBudget,
        ledger: Ledger,
        *,
        host_grace_seconds: float,
        fence: int,
        neighbours: Sequence[str] = (),
    ) -> None:
        self.cluster, self.config, self.budget, self.ledger = cluster, config, budget, ledger
        self.host_grace_seconds = host_grace_seconds
        #: hosts on which something else takes a slot for good, once for each
        self.neighbours = list(neighbours)
        self.members: list[WorkerState] = []
        #: what the batch at work means for windows and punctuation
        self.batch_time = BatchTime()
        self.punctuation_plan: PunctuationPlan = ()
        self._fence = fence
        self._recovering: dict[int, Loss] = {}
        self._restored: dict[int, TaskReport] = {}
        self._passed_over: dict[int, tuple[str, ...]] = {}
        self._gap: tuple[str, ...] = ()

    @property
    def homes(self) -> list[str]:
        return [member.home for member in self.members]

    def gather(self, batch: int, record: CommitRecord | None, damaged: Sequence[str]) -> None:
        """Finds the workers again, or makes new ones, so that ``batch`` can run next.

        ``damaged`` names what was passed over to reach ``record``: what is recovered from an older record than
        the last one is not covered by any bound, and the ledger says so.
        """
        name = self.config.operator_name
        records = record.operators.get(name) if record else None
        slots = self._with_hosts({one.host for one in records or ()})
        survivors = find_survivors(self.cluster, sorted(slots), self.config)
        self.members, undeclared = restore_workers(
            batch=batch,
            budget=self.budget,
            slots=slots,
            taken=self.neighbours,
            records=records,
            losses=[entry.loss for entry in self.ledger.entries() if entry.loss.operator == name],
            survivors=[survivor for survivor in survivors if survivor.operator == name],
        )
        self._gap = tuple(damaged)
        if damaged:
            # Backups between the record found and the last one are unknown: no chain may go on with a hole in it.
            self.members = [replace(member, restart_chain=True) for member in self.members]
        self._recovering = self._unfinished()
        for worker in undeclared:
            self._declare(self.members[worker], batch, "its segment was gone when the driver started")
        self._passed_over = dict.fromkeys(self._recovering, self._gap)

    def _with_hosts(self, wanted: set[str]) -> dict[str, int]:
        """The slots of all hosts, once those where workers lived have an executor, or stay away for too long."""
        clock = self.cluster.clock
        deadline = clock.monotonic() + self.host_grace_seconds
        while not wanted <= (slots := self.cluster.slots_by_host()).keys() and clock.monotonic() < deadline:
            clock.sleep(0.1)
        return slots

    def _unfinished(self) -> dict[int, Loss]:
        """Losses an earlier driver declared for the present incarnations and did not see made good."""
        name = self.config.operator_name
        return {
            entry.loss.worker: entry.loss
            for entry in self.ledger.entries()
            if entry.recovery is None
            and entry.loss.operator == name
            and self.members[entry.loss.worker].incarnation == entry.loss.incarnation + 1
        }

    def requests(self, batch: int) -> list[TaskRequest]:
        """Orders for ``batch``. Waits for homes without executor; those that stay away lose their workers."""
        deadline = self.cluster.clock.monotonic() + self.host_grace_seconds
        while away := [member for member in self.members if member.home not in self.cluster.slots_by_host()]:
            if self.cluster.clock.monotonic() >= deadline:
                for member in away:
                    self._declare(member, batch, f"host {member.home} is gone")
                break
            self.cluster.clock.sleep(0.1)
        return [
            replace(
                member.request(batch, self.budget, self._fence, self.batch_time), punctuation_plan=self.punctuation_plan
            )
            for member in self.members
        ]

    def raise_fence(self) -> None:
        """No task sent before may do anything any more."""
        self._fence += 1

    def last_requests(self, batch: int) -> list[TaskRequest]:
        """Orders like those of ``batch``, for whoever speaks on behalf of its workers."""
        return [member.request(batch, self.budget, self._fence, self.batch_time) for member in self.members]

    def take_back(self, batch: int) -> list[TaskRequest]:
        """Orders that undo ``batch``. The fence rises before and after: no late task may mix the two."""
        self.raise_fence()
        requests = [replace(request, hint=Hint.ROLLBACK) for request in self.requests(batch)]
        self.raise_fence()
        return requests

    def act_on(self, batch: int, reports: Sequence[TaskReport | None]) -> bool:
        """Acts on the reports of a try; True if every worker has applied the batch."""
        for report in reports:
            if report is not None and "recovery" in report.seconds:
                # Its state may be restored in one try, and the batch applied in a later one.
                self._restored[report.worker] = report
        if all(report is not None and report.status is Status.APPLIED for report in reports):
            return True
        alive = self.cluster.slots_by_host()
        done = True
        for member, report in zip(list(self.members), reports, strict=True):
            verdict = judge(member, report, alive)
            done = done and verdict is Verdict.DONE
            if report is None:
                continue
            if verdict is Verdict.FAIL and report.error is not None:
                report.error.fields.update(batch=batch, worker=member.worker)
                raise report.error
            if verdict is Verdict.REFUSE:
                raise CheckpointError(
                    f"The resident state of worker {member.worker} contradicts batch {batch} ({report.detail}).",
                    remedy="Use the checkpoint this state belongs to, or start with a new one.",
                    worker=member.worker,
                    batch=batch,
                )
            if verdict is Verdict.LOST:
                self._declare(member, batch, f"its segment is {report.detail}", report.trace)
        return done

    def advance(self, reports: Sequence[TaskReport]) -> None:
        """After all workers applied a batch."""
        for report in reports:
            self.members[report.worker] = self.members[report.worker].applied(report, self.budget, self.batch_time)
        self._gap = ()

    def rest(self, batch: int, reports: Sequence[TaskReport]) -> None:
        """After all workers have their state for ``batch``, which is not applied yet."""
        self.members = [replace(member, hint=Hint.RESUME) for member in self.members]
        self.complete(batch, reports)

    def complete(self, batch: int, reports: Sequence[TaskReport]) -> list[LedgerEntry]:
        """Once all workers have their state, before anybody is told a bound: completes the recoveries among them."""
        finished = []
        for report in reports:
            loss = self._recovering.pop(report.worker, None) or self._met_again(batch, report)
            if loss is not None:
                finished.append(self._complete(loss, report))
        return finished

    def _met_again(self, batch: int, report: TaskReport) -> Loss | None:
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
                incarnation=-1,
                counted=False,
                cause="it was lost in its first batch",
                theta={},
                failures=0,
            )
        )

    def _complete(self, loss: Loss, report: TaskReport) -> LedgerEntry:
        damaged = (*self._passed_over.pop(report.worker, ()), *report.damaged)
        restored = self._restored.pop(report.worker, report)
        if damaged:
            LOG.warning(
                "Worker %d was recovered from an older backup, because %s cannot be read: "
                "the promised bound does not cover this loss.",
                report.worker,
                ", ".join(damaged),
            )
        details: dict[str, Any] = {
            "gap_seconds": self.cluster.clock.time() - loss.at,
            "host": report.host,
            "items_behind": report.behind,
        }
        if damaged and self.budget.paned:
            # What was taken off a lane within a batch, or in batches whose records are lost, may have opened any pane.
            known = not self.config.pushed and damaged == report.damaged
            details["panes"] = self.batch_time.panes_at_risk(known=known)
        return self.ledger.complete(
            loss.sequence,
            recovery_seconds=restored.seconds.get("recovery", 0.0),
            restored_cells=restored.restored_cells,
            damaged=damaged,
            details=details,
        )

    def _declare(self, member: WorkerState, batch: int, cause: str, trace: LossEvidence | None = None) -> None:
        slots = self.cluster.slots_by_host()
        home = member.home
        if home not in slots:
            staying = [other.home for other in self.members if other.worker != member.worker]
            staying += self.neighbours
            home = spread([member.worker], slots, staying)[member.worker]
        successor = member.lost(self.budget, home, self.batch_time, trace)
        counted = successor.failures > member.failures
        loss = Loss(
            batch=batch,
            operator=self.config.operator_name,
            worker=member.worker,
            incarnation=member.incarnation,
            counted=counted,
            cause=cause,
            theta=self.budget.theta(member.counted_failures) | dict(member.older_theta or {}),
            failures=member.failures,
            counted_failure=successor.counted_failures[-1].to_json() if counted else {},
            # Items of an incarnation that completed nothing are in the entry of the one before it.
            items=member.waiting if member.completed else 0,
            details=self.budget.thresholds(member.counted_failures).to_json(),
        )
        self._recovering[member.worker] = self.ledger.declare(loss)
        self._passed_over[member.worker] = self._gap
        self.members[member.worker] = successor
