"""Runs the stages of a batch, one an operator, again and again until every worker has applied it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.digests import digests_agree
from afspark.coordinator.operator_inputs import OperatorInputs, Slices
from afspark.coordinator.operator_run import OperatorRun
from afspark.errors import WorkerFailed
from afspark.numbers import Batch
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.task.stage_inputs import StageInput

#: How often a batch is tried before the query gives up; Spark has retried its tasks before.
BATCH_TRIES = 12


class StageRunner:
    """The stages of one query. ``runs`` are all of its operators, each after those that it reads from."""

    def __init__(self, cluster: Cluster, inputs: OperatorInputs) -> None:
        self._cluster, self._inputs = cluster, inputs
        #: what workers said last
        self._last: dict[ReplicaId, TaskReport] = {}

    def apply(self, runs: Sequence[OperatorRun], batch: Batch, frame: Any, slices: Slices) -> int:
        """Runs all stages until every worker has applied the batch; the number of tries."""
        for attempt in range(1, BATCH_TRIES + 1):
            if all(self._advance(run, runs, batch, frame, slices) for run in runs):
                return attempt
            if len(runs) > 1:
                # An operator may have lost what another one waits for.
                self.revive(runs, batch)
            self._cluster.clock.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def revive(self, runs: Sequence[OperatorRun], batch: Batch, *, complete: bool = False) -> None:
        """Brings all workers to the batch before, or leaves them where they have applied it already."""
        for run in runs:
            for attempt in range(1, BATCH_TRIES + 1):
                if run.config.stepped:
                    self._shut_out(run, batch)
                requests = [replace(request, apply=False) for request in run.group.requests(batch)]
                reports = self._reports(run, requests)
                if run.group.act_on(batch, reports):
                    if complete:
                        run.group.rest(batch, [reports[replica] for replica in sorted(reports)])
                    break
                self._cluster.clock.sleep(0.1 * (attempt - 1))
            else:
                raise self._gave_up(batch)

    def _advance(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, frame: Any, slices: Slices) -> bool:
        """One try of one operator's stage; True if all of its workers have applied the batch."""
        requests = [replace(request, quarantine_room=run.quarantine_room) for request in run.group.requests(batch)]
        reports = self._reports(run, requests, self._inputs.of(run, runs, batch, frame, slices))
        if not run.group.act_on(batch, reports):
            return False
        run.reports = [reports[replica] for replica in sorted(reports)]
        if digests_agree(run.reports, self._inputs.produced(run, runs)):
            return True
        concerned = {run.name, *self._inputs.pipeline.downstream_of(run.name)}
        for one in runs:
            if one.name in concerned:
                self._roll_back(one, batch)
        return False

    def _shut_out(self, run: OperatorRun, batch: Batch) -> None:
        """Takes the lanes of workers that may have to be restored: no task sent before confirms anything any more."""
        receivers = self._inputs.receivers
        run.group.raise_fence()
        for edge in run.node.inputs:
            if edge.origin in receivers.sources:
                receivers.take_over(edge.origin, run.group.last_requests(batch))

    def _roll_back(self, run: OperatorRun, batch: Batch) -> None:
        """Takes the batch back everywhere: a retried stage has given some workers other items."""
        self._reports(run, run.group.take_back(batch))

    def _reports(
        self, run: OperatorRun, requests: Sequence[TaskRequest], inputs: Sequence[StageInput] = ()
    ) -> dict[ReplicaId, TaskReport]:
        """The workers' reports; none at all if the stage failed, which the cluster has tried to prevent by retries."""
        try:
            found = self._cluster.run_stage(run.config, run.work, requests, inputs)
        except StageFailed:
            return {}
        self._last = {report.replica_id: report for report in found}
        return self._last

    def _gave_up(self, batch: Batch) -> WorkerFailed:
        details = sorted({report.detail for report in self._last.values() if report.detail})
        return WorkerFailed(
            f"Batch {batch} could not be applied in {BATCH_TRIES} tries{': ' if details else '.'}{' '.join(details)}",
            remedy="See the executors' logs.",
            batch=batch,
        )
