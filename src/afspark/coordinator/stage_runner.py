"""Runs the stages of a batch, one an operator, again and again until every worker has applied it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.digests import digests_agree
from afspark.coordinator.model_servers import ModelServers
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.recovery.queued_span import QueuedSpan, SpanReports
from afspark.coordinator.recovery.replay import Replay
from afspark.coordinator.recovery.replay_check import origin_of, others_applied
from afspark.coordinator.recovery.verdicts import reasons
from afspark.errors import WorkerFailed
from afspark.numbers import Batch
from afspark.protocol.replicas import ReplicaId
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.task.stage_inputs import StageInput

LOG = logging.getLogger("afspark")

#: How often a batch is tried before the query gives up; Spark has retried its tasks before.
BATCH_TRIES = 12


class Companions(Protocol):
    """Whoever works at the same time as the workers of an operator."""

    def accompany(
        self, run: OperatorRun, batch: Batch, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> None:
        """Called when the workers begin with a batch."""

    def settle(self) -> None:
        """Called before the batch is taken back."""


class StageRunner:
    """The stages of one query. ``runs`` are all of its operators, each after those that it reads from."""

    def __init__(self, cluster: Cluster, inputs: OperatorInputs, companions: Companions) -> None:
        self._cluster, self._inputs, self._companions = cluster, inputs, companions
        self.replay = Replay(
            self._replay_stage, self._queued_stage, cluster.clock, inputs.pipeline.nodes, inputs.pipeline.frames
        )
        self._servers = ModelServers(cluster, inputs.pipeline)
        #: whether backups may reach the store after the batch has ended
        self.spools = False
        #: whether a loss takes all workers back to the durable record
        self.takes_all_back = False
        #: why workers could not do what the batch at work needs, when any said so last
        self._reasons: list[str] = []

    def check_slots(self) -> None:
        """UsageError if workers that have to be at work at the same time could not be."""
        self._servers.check_slots(self._inputs.pipeline)
        self._servers.check_sizes()

    def model_events(self) -> dict[str, Any]:
        """When workers pushed and pulled in the last batch, by operator that trains; empty if a server is gone."""
        return self._servers.events()

    def begin_past(self, runs: Sequence[OperatorRun], first: Batch) -> None:
        """Before batches from ``first`` on are run again: those who train a model do so together, or not at all."""
        if self._servers.active and any(run.group.lacks_batches for run in runs):
            for run in runs:
                run.group.go_back(first)

    def close(self) -> None:
        self._servers.close()

    def apply(self, runs: Sequence[OperatorRun], batch: Batch, given: BatchInput, *, past: bool = False) -> int:
        """Runs all stages until every worker has applied the batch; the number of tries.

        ``past``: workers may have applied it, and later ones, for an earlier driver.
        """
        self._reasons = []
        if not past:
            self.replay.check.run(batch)
        for attempt in range(1, BATCH_TRIES + 1):
            if all(self._advance(run, runs, batch, given, past=past) for run in runs):
                return attempt
            if len(runs) > 1:
                # An operator may have lost what another one waits for.
                self.revive(runs, batch)
            self._cluster.clock.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def revive(self, runs: Sequence[OperatorRun], batch: Batch, *, complete: bool = False) -> frozenset[str]:
        """Brings all workers to the batch before, or leaves them where they have applied it already.

        They upload what waits in their spools; the names of backups that the store may not have all the same.
        """
        for attempt in range(1, BATCH_TRIES + 1):
            found = [(run, self._look_after(run, batch)) for run in runs]
            if all(reports is not None for _, reports in found) and self._catch_up(runs, batch):
                if complete:
                    for run, reports in found:
                        run.group.rest(batch, reports or ())
                return frozenset(name for _, reports in found for one in reports or () for name in one.pending)
            self._cluster.clock.sleep(0.1 * (attempt - 1))
        raise self._gave_up(batch)

    def lacks(self, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Whether a worker turns out to have lost ``batch``, which all had applied; such a one is given its state back.

        The ledger does not tell: one that was lost before in this batch, or in its first one, is made again in silence.
        """
        found = [self._look_after(run, batch) for run in runs]
        return any(reports is None or any(report.lacks_batch for report in reports) for reports in found)

    def back_up_at_rest(self, runs: Sequence[OperatorRun], batch: Batch, seconds: float) -> dict[str, list[TaskReport]]:
        """Has workers that have applied ``batch`` make durable what no backup holds; what they say, by operator.

        In so many seconds at most, and tried once: `WorkerFailed` if somebody cannot.
        """
        found: dict[str, list[TaskReport]] = {}
        for run in runs:
            requests = [replace(one, rest_seconds=seconds) for one in run.group.requests_at_rest(batch)]
            reports = self._reports(run, requests)
            silent = [one for one in requests if one.replica_id not in reports]
            refused = [report for report in reports.values() if report.status is not Status.APPLIED]
            if refused and refused[0].error is not None:
                raise refused[0].error
            if silent or refused:
                raise WorkerFailed(
                    f"A worker of {run.name!r} could not back up its state after batch {batch}:"
                    f" {refused[0].detail or refused[0].status if refused else 'its task has failed'}.",
                    remedy="See the executors' logs.",
                    batch=batch,
                )
            found[run.name] = list(reports.values())
        return found

    def take_back(self, runs: Sequence[OperatorRun], batch: Batch) -> None:
        """Has workers that have applied ``batch``, which Spark has not committed, take it back."""
        for run in runs:
            self._roll_back(run, batch)

    def _look_after(self, run: OperatorRun, batch: Batch) -> list[TaskReport] | None:
        """One try to give every worker of an operator a state, wherever it stands; None if one has none yet."""
        run.group.recoveries.timings.begin(batch)
        if run.config.could_step:
            self._shut_out(run, batch)
        run.group.await_hosts(batch)
        requests = [replace(request, apply=False, replay=True) for request in self.replay.next_requests(run, batch)]
        reports = self._reports(run, requests)
        return [reports[replica] for replica in sorted(reports)] if run.group.act_on(batch, reports) else None

    def _advance(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, given: BatchInput, *, past: bool
    ) -> bool:
        """One try of one operator's stage; True if all of its workers have applied the batch."""
        run.group.recoveries.timings.begin(batch)
        run.group.await_hosts(batch)
        if not self._catch_up(runs, batch):
            return False
        if past and not any(one.group.lacks_batches for one in runs):
            return self._recall(run, batch)
        if past:
            given.tell()
        if self._servers.must_take_back(run, runs, batch):
            if past:
                self._all_go_back(runs, batch)
            if past or not self._take_back(run, runs, batch):
                return False
        inputs = self._inputs.of(run, runs, batch, given)
        requests = self._equipped(run, runs, batch, past=past)
        if requests is None:
            return False
        if not past and self.spools:
            # Who has applied a batch before it takes over has backed up nothing; some records have to be there.
            self._companions.accompany(run, batch, requests, inputs)
        reports = self._reports(run, requests, inputs)
        if not run.group.act_on(batch, reports):
            return False
        run.reports = [reports[replica] for replica in sorted(reports)]
        produced = self._inputs.produced(run, runs)
        if past:
            return self._is_one_reading(run.reports, runs, batch) and self._agree_on_past(run, runs, batch, produced)
        if digests_agree(run.reports, produced):
            return True
        self._take_back(run, runs, batch)
        return False

    def _take_back(self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Has an operator and all that it reaches take the batch back; whether all of them have."""
        names = {run.name, *self._inputs.pipeline.downstream_of(run.name)}
        concerned = [one for one in runs if one.name in names]
        left = [one for one in concerned if not self._roll_back(one, batch)]
        for one in concerned:
            self._servers.taken_back(one.name, everywhere=not left)
        return not left

    def take_back_everywhere(self, runs: Sequence[OperatorRun], batch: Batch) -> None:
        """Has these operators take back ``batch``, which they may have applied for a driver with another pipeline."""
        for run in runs:
            self._roll_back(run, batch)

    def _equipped(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, *, past: bool
    ) -> list[TaskRequest] | None:
        """What workers are asked to do; None if the model that they train is not there."""

        def restored(model: OperatorRun) -> bool:
            return self._look_after(model, batch) is not None

        return self._servers.equip(run, runs, batch, self._requests(run, batch, past=past), restored)

    def _recall(self, run: OperatorRun, batch: Batch) -> bool:
        """Asks workers that have applied a past ``batch`` what they answered then; nothing is read for them.

        False if one of them turns out to lack it.
        """
        requests = [replace(request, apply=False) for request in self._requests(run, batch, past=True)]
        reports = self._reports(run, requests)
        if not run.group.act_on(batch, reports):
            return False
        run.reports = [reports[replica] for replica in sorted(reports)]
        run.group.lacks_batches = any(report.lacks_batch for report in run.reports)
        return not run.group.lacks_batches

    def _is_one_reading(self, reports: Iterable[TaskReport], runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Whether those who have replayed ``batch`` got the rows of a DataFrame as the others had got them then.

        Spark divides the same rows among other partitions if it has other slots now. Then nobody can say whose share
        was whose, and all workers go back to the durable record, so that there is one reading for everybody.
        """
        frames = tuple(f"{name}:" for name in self._inputs.pipeline.frames)
        found = [
            {label: one for label, one in report.consumed.items() if label.startswith(frames)} for report in reports
        ]
        if not frames or all(one == found[0] for one in found):
            return True
        LOG.warning(
            "Spark has divided the rows of batch %d in another way than before: all workers replay it, and those before"
            " it that no record covers.",
            batch,
        )
        self._all_go_back(runs, batch)
        return False

    def _all_go_back(self, runs: Sequence[OperatorRun], batch: Batch) -> None:
        """Takes everybody back to the durable record, whatever they have applied of ``batch``, or before it."""
        for run in runs:
            run.group.go_back(batch, everybody=True)
        self._servers.gone_back()

    def _agree_on_past(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, produced: Mapping[str, str]
    ) -> bool:
        """Whether all workers have applied what there is now; those that have not go back.

        They have applied it for an earlier driver; what was lost with that, and is made again, may be something else.
        """
        check = self.replay.check
        self.replay.compare(run, runs, batch, run.reports)
        kept = {**produced, **check.feedback_kept(run.node, batch)}
        other = others_applied(run.reports, kept)
        by_name = {one.name: one for one in runs}
        for origin in {origin_of(label) for labels in other.values() for label in labels}:
            check.suspect(run.name, origin, batch, exact=by_name[origin].group.restores_exactly)
        labels = ", ".join(sorted({label for found in other.values() for label in found}))
        return not self.replay.take_back(run, runs, batch, sorted(other), f"{labels} is something else than it was")

    def _catch_up(self, runs: Sequence[OperatorRun], batch: Batch) -> bool:
        """Has every worker apply what it lacks of the batches before; False if that has to be tried again."""
        if (self.takes_all_back or self._servers.active) and self.replay.is_needed(runs, batch):
            for run in runs:
                run.group.go_back(batch)
        return self.replay.catch_up(runs, batch)

    def _requests(self, run: OperatorRun, batch: Batch, *, past: bool) -> list[TaskRequest]:
        return [self._completed(run, request, past=past) for request in run.group.requests(batch)]

    def _completed(self, run: OperatorRun, request: TaskRequest, *, past: bool) -> TaskRequest:
        return replace(request, quarantine_room=run.quarantine_room, spools=self.spools, replay=past)

    def _replay_stage(
        self, run: OperatorRun, runs: Sequence[OperatorRun], batch: Batch, given: BatchInput
    ) -> Mapping[ReplicaId, TaskReport]:
        if self._servers.must_take_back(run, runs, batch) or not self._servers.has_rounds(run, runs, batch):
            # A past batch cannot be taken back, and nobody knows who has applied it already.
            self._all_go_back(runs, batch)
            return {}
        inputs = self._inputs.of(run, runs, batch, given)
        requests = self._equipped(run, runs, batch, past=True)
        reports = {} if requests is None else self._reports(run, requests, inputs)
        applied = [report for report in reports.values() if report.status is Status.APPLIED]
        if self.replay.check.was_read_before(batch) and not self._is_one_reading(applied, runs, batch):
            return {}
        return reports

    def _queued_stage(self, run: OperatorRun, span: QueuedSpan) -> SpanReports:
        """What those who lack the batches of a span say of them; they take the items from their queues."""
        by_batch = []
        for batch in span.batches:
            with run.group.at(batch):
                requests = [run.group.request(one.following(batch), batch) for one in span.members]
            by_batch.append([replace(self._completed(run, one, past=True), queued=True) for one in requests])
        asked = [replace(first, following=tuple(others)) for first, *others in zip(*by_batch, strict=True)]
        found: dict[Batch, dict[ReplicaId, TaskReport]] = {batch: {} for batch in span.batches}
        exact = run.group.restores_exactly
        for report in self._stage(run, asked):
            if report.batch is not None:
                found[report.batch][report.replica_id] = report
                self.replay.check.hear(run.name, report.batch, report, exact=exact)
        return found

    def _shut_out(self, run: OperatorRun, batch: Batch) -> None:
        """Takes the lanes of workers that may have to be restored: no task sent before confirms anything any more."""
        receivers = self._inputs.receivers
        run.group.raise_fence()
        for edge in run.node.inputs:
            if edge.origin in receivers.sources:
                receivers.take_over(edge.origin, run.group.last_requests(batch))

    def _roll_back(self, run: OperatorRun, batch: Batch) -> bool:
        """Takes the batch back everywhere: a retried stage has given some workers other items. Whether all could."""
        self._companions.settle()
        requests = run.group.take_back(batch)
        reports = self._reports(run, requests)
        run.group.secondaries.discard_from(batch)
        # Those who refuse have another state, or none.
        undone = {Status.BUSY, Status.MISPLACED, Status.FAILED}
        heard = {one for one, report in reports.items() if report.status not in undone}
        return heard >= {request.replica_id for request in requests}

    def _reports(
        self, run: OperatorRun, requests: Sequence[TaskRequest], inputs: Sequence[StageInput] = ()
    ) -> dict[ReplicaId, TaskReport]:
        """The workers' reports; none at all if the stage failed, which the cluster has tried to prevent by retries."""
        found = {report.replica_id: report for report in self._stage(run, requests, inputs)}
        exact = run.group.restores_exactly
        for request in requests:
            if request.replica_id in found:
                self.replay.check.hear(run.name, request.batch, found[request.replica_id], exact=exact)
        return found

    def _stage(
        self, run: OperatorRun, requests: Sequence[TaskRequest], inputs: Sequence[StageInput] = ()
    ) -> list[TaskReport]:
        started = self._cluster.clock.monotonic()
        try:
            found = self._cluster.run_stage(run.config, run.work, requests, inputs)
        except StageFailed:
            return []
        run.stage_seconds = self._cluster.clock.monotonic() - started
        # The next stage may be one that takes the batch back, and succeed.
        said = reasons(found)
        self._reasons = said or self._reasons
        self._servers.warn_of_waits(run.name, requests[0].batch, said)
        return found

    def _gave_up(self, batch: Batch) -> WorkerFailed:
        why = "; ".join(one.rstrip(".") for one in self._reasons) or "each time a stage failed or a worker was lost"
        return WorkerFailed(
            f"Batch {batch} could not be applied in {BATCH_TRIES} tries: {why}.",
            remedy="See the executors' logs, then start the query again.",
            batch=batch,
        )
