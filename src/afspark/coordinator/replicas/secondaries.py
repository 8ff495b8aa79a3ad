"""Has the secondaries of a query follow their primaries, behind the batches.

A secondary applies the batches that its primary has applied, one after the other, in jobs of its own that nobody waits
for. A new one is built from the newest durable record, like a worker that was lost, and catches up from there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.batch_input import BatchInput
from afspark.coordinator.operator_inputs import OperatorInputs
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.replicas.secondary import Secondary
from afspark.numbers import Batch
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.stage_inputs import StageInput
from afspark.task.task_environment import TaskEnvironment

LOG = logging.getLogger("afspark")

#: How long a query that ends waits for its secondaries: a host that does not answer must not hold it up.
CLOSING_SECONDS = 10.0


@dataclass(frozen=True)
class FollowedBatch:
    """What belonged to a batch that primaries have applied, and what they were asked, by operator and worker."""

    given: BatchInput
    requests: Mapping[str, Mapping[int, TaskRequest]]


@dataclass(frozen=True)
class FollowStage:
    """One stage of secondaries: all that its job needs, so that the driver may go on meanwhile."""

    run: OperatorRun
    batch: Batch
    secondaries: Sequence[Secondary]
    requests: Sequence[TaskRequest]
    inputs: Sequence[StageInput]


@dataclass
class FollowJob:
    """A job under way, and what it has found out."""

    applied: list[tuple[FollowStage, Secondary, TaskReport]] = field(default_factory=list)
    gone: list[tuple[FollowStage, Secondary, str]] = field(default_factory=list)
    work: BackgroundWrite | None = None

    @property
    def is_done(self) -> bool:
        return self.work is None or self.work.wait(0)


class Secondaries:
    """The secondaries of all operators whose tolerance has some."""

    def __init__(self, cluster: Cluster, inputs: OperatorInputs) -> None:
        self._cluster, self._inputs = cluster, inputs
        self._batches: dict[Batch, FollowedBatch] = {}
        self._job = FollowJob()

    def follow(self, batch: Batch, given: BatchInput, runs: Sequence[OperatorRun]) -> None:
        """Has secondaries apply ``batch``, which all primaries have applied, as soon as they come to it."""
        followed = [run for run in runs if run.group.secondaries.wanted]
        if not followed:
            return
        requests = {run.name: {one.worker: one for one in run.group.requests(batch)} for run in followed}
        self._batches[batch] = FollowedBatch(given, requests)
        if self._job.is_done:
            self.take_up()
            self._start(followed, runs)

    def forget(self, covered: Batch) -> None:
        """A durable record covers ``covered``: nobody will ask for what came until then."""
        self._batches = {batch: one for batch, one in self._batches.items() if batch > covered}

    def take_up(self) -> None:
        """Notes what the last job has found out so far."""
        job = self._job
        while job.applied:
            stage, one, report = job.applied.pop(0)
            stage.run.group.secondaries.applied(one, stage.batch, damaged=bool(report.damaged))
        while job.gone:
            stage, one, why = job.gone.pop(0)
            LOG.warning("The secondary of worker %d of %s on %s %s.", one.worker, stage.run.name, one.home, why)
            stage.run.group.secondaries.gone(one)
        failure = None if job.work is None else job.work.failure
        if isinstance(failure, Exception):
            LOG.warning("Secondaries did not come to the last batch: %s", failure)
        elif failure is not None:
            raise failure

    def close(self) -> None:
        """Waits for the job under way, if that ends soon: nobody follows any more."""
        if self._job.work is not None:
            self._job.work.wait(CLOSING_SECONDS)
        self.take_up()
        self._job = FollowJob()

    def _start(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> None:
        slots = self._cluster.slots_by_host()
        unusable = []
        for run in followed:
            unusable += [
                (run.config, one) for one in run.group.secondaries.house(run.group.members, run.group.covered, slots)
            ]
        stages = self._stages(followed, runs)
        self._job = job = FollowJob()
        job.work = self._cluster.in_background(partial(self._carry_out, unusable, stages, job))
        if job.is_done:
            self.take_up()

    def _stages(self, followed: Sequence[OperatorRun], runs: Sequence[OperatorRun]) -> list[FollowStage]:
        """What secondaries have to do to come to the newest batch: batch by batch, operators after each other."""
        stages = []
        found = {run.name: run.group.secondaries.members for run in followed}
        for batch, known in sorted(self._batches.items()):
            for run in followed:
                members = found[run.name]
                if len(members) < run.node.workers:
                    # Each of a stage's tasks also sends its share of the input to the others.
                    continue
                if all(one.version >= batch for one in members) or any(one.version < batch - 1 for one in members):
                    # Those who lack a batch that nobody remembers are built anew from a newer record.
                    continue
                asked = known.requests[run.name]
                requests = [replace(one.request(asked[one.worker]), fence=run.group.fence) for one in members]
                inputs = self._inputs.of(run, runs, batch, known.given)
                stages.append(FollowStage(run, batch, members, requests, inputs))
                found[run.name] = [one.applied(batch) for one in members]
        return stages

    # --- in the background ----------------------------------------------------------------------------------

    def _carry_out(
        self, unusable: Sequence[tuple[OperatorConfig, Secondary]], stages: Sequence[FollowStage], job: FollowJob
    ) -> None:
        if unusable:
            homes = {number: one.home for number, (_, one) in enumerate(unusable)}
            self._cluster.run_on(homes, partial(_clear, tuple(unusable)))
        for stage in stages:
            if not self._has_applied(stage, job):
                return

    def _has_applied(self, stage: FollowStage, job: FollowJob) -> bool:
        """Whether all secondaries of a stage have applied its batch."""
        try:
            reports = self._cluster.run_stage(stage.run.config, stage.run.work, stage.requests, stage.inputs)
        except StageFailed:
            return False
        by_worker = {report.worker: report for report in reports}
        for one in stage.secondaries:
            report = by_worker.get(one.worker)
            if report is None or report.status in (Status.BUSY, Status.MISPLACED):
                continue
            if report.status is Status.APPLIED:
                job.applied.append((stage, one, report))
            else:
                job.gone.append((stage, one, f"has to be built anew ({report.detail or report.error})"))
        return all(report.status is Status.APPLIED for report in reports) and len(reports) == len(stage.secondaries)


def _clear(
    unusable: Sequence[tuple[OperatorConfig, Secondary]], environment: TaskEnvironment, number: int
) -> tuple[()]:
    """Removes the state of a secondary that nobody can use any more, where it lives."""
    config, one = unusable[number]
    if environment.host == one.home:
        environment.drop_secondary(config, one.worker, one.incarnation)
    return ()
