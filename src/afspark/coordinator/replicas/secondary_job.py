"""A job for secondaries: what it has to do, and how that is done in the background while the driver goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from afspark.cluster.cluster import Cluster, StageFailed
from afspark.coordinator.operator_run import OperatorRun
from afspark.coordinator.replicas.secondary import Secondary
from afspark.numbers import Batch
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.protocol.shipments import ShipAnswer, ShipOrder
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.deployment import deploy
from afspark.task.shipping import put_checkpoints, take_checkpoints
from afspark.task.stage_inputs import StageInput
from afspark.task.task_environment import TaskEnvironment


@dataclass(frozen=True)
class SecondaryStage:
    """One stage of secondaries: all that its job needs, so that the driver may go on meanwhile.

    ``batch`` is what they have when it has ended.
    """

    run: OperatorRun
    batch: Batch
    secondaries: Sequence[Secondary]
    requests: Sequence[TaskRequest]
    inputs: Sequence[StageInput]
    #: how often operators that reach this one had made something else of a batch when it was ordered
    changes: int = 0


@dataclass(frozen=True)
class SecondaryOrders:
    """What a job has to do, in this order."""

    unusable: Sequence[tuple[OperatorRun, Secondary]] = ()
    to_deploy: Sequence[tuple[OperatorRun, Secondary]] = ()
    to_build: Sequence[SecondaryStage] = ()
    to_follow: Sequence[SecondaryStage] = ()
    to_ship: Sequence[tuple[OperatorRun, Secondary, ShipOrder]] = ()
    to_queue: Sequence[SecondaryStage] = ()

    @property
    def is_empty(self) -> bool:
        return not any(vars(self).values())


@dataclass
class SecondaryJob:
    """A job under way, and what it has found out."""

    applied: list[tuple[SecondaryStage, Secondary, TaskReport]] = field(default_factory=list)
    shipped: list[tuple[OperatorRun, Secondary, ShipAnswer]] = field(default_factory=list)
    #: and how many seconds that took
    deployed: list[tuple[OperatorRun, Secondary, float]] = field(default_factory=list)
    queued: list[tuple[SecondaryStage, Secondary, TaskReport]] = field(default_factory=list)
    gone: list[tuple[OperatorRun, Secondary, str]] = field(default_factory=list)
    #: places that could not be cleared
    uncleared: list[tuple[OperatorRun, Secondary]] = field(default_factory=list)
    work: BackgroundWrite | None = None
    #: what it has not begun yet is left to the next one
    is_stopped: bool = False

    @property
    def is_done(self) -> bool:
        return self.work is None or self.work.wait(0)

    def carry_out(self, cluster: Cluster, orders: SecondaryOrders) -> None:
        """Does what was ordered; what cannot be done now is left for the next job."""
        if not self._clear(cluster, orders.unusable):
            # Whoever is built where something is left would take that for its own.
            return
        self._deploy(cluster, orders.to_deploy)
        for stage in orders.to_build:
            self.run(cluster, stage)
        for stage in orders.to_follow:
            if not self.run(cluster, stage):
                break
        self._ship(cluster, orders.to_ship)
        for stage in orders.to_queue:
            self._queue(cluster, stage)

    def _clear(self, cluster: Cluster, unusable: Sequence[tuple[OperatorRun, Secondary]]) -> bool:
        if not unusable:
            return True
        homes = {number: one.home for number, (_, one) in enumerate(unusable)}
        try:
            cluster.try_on(homes, partial(_clear, tuple((run.config, one) for run, one in unusable)))
        except StageFailed:
            self.uncleared += unusable
            return False
        return True

    def _deploy(self, cluster: Cluster, ordered: Sequence[tuple[OperatorRun, Secondary]]) -> None:
        if not ordered or self.is_stopped:
            return
        places = tuple((run.config, one.worker, one.home) for run, one in ordered)
        homes = {number: one.home for number, (_, one) in enumerate(ordered)}
        by_unit = {(run.name, one.worker): (run, one) for run, one in ordered}
        started = cluster.clock.monotonic()
        try:
            found = cluster.try_on(homes, partial(deploy, places))
        except StageFailed:
            return
        seconds = cluster.clock.monotonic() - started
        self.deployed += [(*by_unit[name, worker], seconds) for name, worker in found]

    def _queue(self, cluster: Cluster, stage: SecondaryStage) -> None:
        if self.is_stopped:
            return
        try:
            reports = cluster.run_stage(stage.run.config, stage.run.work, stage.requests, stage.inputs)
        except StageFailed:
            return
        by_worker = {one.worker: one for one in stage.secondaries}
        for report in reports:
            if report.status is Status.MISSING:
                self.gone.append((stage.run, by_worker[report.worker], "has lost its state"))
            else:
                self.queued.append((stage, by_worker[report.worker], report))

    def run(self, cluster: Cluster, stage: SecondaryStage) -> bool:
        """Whether all secondaries of a stage have done what they were asked."""
        if self.is_stopped:
            return False
        try:
            reports = cluster.run_stage(stage.run.config, stage.run.work, stage.requests, stage.inputs)
        except StageFailed:
            return False
        by_worker = {report.worker: report for report in reports}
        for one in stage.secondaries:
            report = by_worker.get(one.worker)
            if report is None or report.status in (Status.BUSY, Status.MISPLACED):
                continue
            if report.status is Status.APPLIED:
                self.applied.append((stage, one, report))
            else:
                self.gone.append((stage.run, one, f"has to be built anew ({report.detail or report.error})"))
        return all(report.status is Status.APPLIED for report in reports) and len(reports) == len(stage.secondaries)

    def _ship(self, cluster: Cluster, ordered: Sequence[tuple[OperatorRun, Secondary, ShipOrder]]) -> None:
        if not ordered or self.is_stopped:
            return
        # The operator is not needed by whoever takes them, but its configuration carries it to where they go.
        orders = tuple(order for _, _, order in ordered)
        sources = {number: order.source for number, order in enumerate(orders)}
        targets = {number: order.target for number, order in enumerate(orders)}
        try:
            answers = cluster.move(
                sources, partial(take_checkpoints, orders), targets, partial(put_checkpoints, orders)
            )
        except StageFailed:
            return
        by_unit = {(run.name, one.worker): (run, one) for run, one, _ in ordered}
        for name, answer in answers:
            run, one = by_unit[name, answer.worker]
            if answer.refused:
                self.gone.append((run, one, answer.refused))
            else:
                self.shipped.append((run, one, answer))


def _clear(
    unusable: Sequence[tuple[OperatorConfig, Secondary]], environment: TaskEnvironment, number: int
) -> tuple[()]:
    """Removes the state of a secondary that nobody can use any more, where it lives."""
    config, one = unusable[number]
    if environment.host == one.home:
        environment.drop_secondary(config, one.worker, one.incarnation)
    return ()
