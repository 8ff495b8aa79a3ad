"""Spark as a `Cluster`: executors offer slots, and every stage is a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from afspark.clock import SystemClock
from afspark.cluster.cluster import HostTask, ReceivingTask, StageFailed
from afspark.cluster.liveness import HostFailure, Patience
from afspark.cluster.spark.anchors import anchor, cluster, driver_host, slots_by_host
from afspark.cluster.spark.executor_watch import ExecutorWatch
from afspark.cluster.spark.executors import Executors
from afspark.cluster.spark.spark_environment import SparkEnvironment
from afspark.cluster.spark.stages import move, run_stage
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.task.backup_writes import BackgroundWrite, ThreadedJob
from afspark.task.stage_inputs import StageInput, UserCode, hosts_of

#: Spark's name for whether a cancelled job interrupts its tasks.
INTERRUPTS = "spark.job.interruptOnCancel"


class SparkCluster:
    """The cluster of a Spark session. ``environment``: what its tasks find where they run; ``watch``: who answers,
    None where tasks run in the driver. ``silent_seconds``: after how long without an answer a host is silent, if a user
    says so.
    """

    def __init__(self, session: SparkSession, silent_seconds: float | None = None) -> None:
        self.session, self._silent_seconds = session, silent_seconds
        self.clock = SystemClock()
        self.receiver_environment = ReceiverEnvironment()
        self.driver_host = driver_host(session.sparkContext)
        self.environment = SparkEnvironment(driver_host=self.driver_host)
        context = session.sparkContext
        self.watch: ExecutorWatch | None = None
        if not cluster(context).local:
            patience = Patience.of(standby=False, silent=silent_seconds)
            self.watch = ExecutorWatch(Executors(context), self.clock, patience)

    @property
    def stopped(self) -> bool:
        context: Any = self.session.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())

    def slots_by_host(self) -> dict[str, int]:
        missing = self.watch.missing_hosts() if self.watch is not None else frozenset()
        slots = slots_by_host(self.session.sparkContext)
        return {host: number for host, number in slots.items() if host not in missing}

    def silent_hosts(self) -> frozenset[str]:
        return self.watch.silent_hosts() if self.watch is not None else frozenset()

    def heed(self, *, standby: bool, elsewhere: bool) -> None:
        if self.watch is not None:
            self.watch.patience = Patience.of(standby=standby, elsewhere=elsewhere, silent=self._silent_seconds)

    def failures(self) -> Sequence[HostFailure]:
        return self.watch.failures() if self.watch is not None else ()

    def detection_seconds(self) -> float | None:
        return self.watch.detection_seconds() if self.watch is not None else None

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return ThreadedJob(job)

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        with self._failing_as_stage(), self.guarded(hosts_of(requests, inputs)):
            return run_stage(self.session.sparkContext, self.environment, config, work, requests, inputs)

    @contextmanager
    def guarded(self, hosts: Iterable[str]) -> Iterator[None]:
        """Within it, jobs of this thread end with `StageFailed` as soon as they wait in vain for one of ``hosts``, or
        for any other that a task of theirs was given to.
        """
        if self.watch is None:
            yield
            return
        with self.watch.stage(hosts) as stage, tagged(self.session.sparkContext, stage.tag):
            try:
                yield
            except Exception as error:
                if stage.is_cancelled:
                    raise StageFailed(f"{', '.join(sorted(self.watch.missing_hosts()))} does not answer") from error
                raise

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        return anchor(self.session.sparkContext, hosts).flatMap(partial(task, self.environment)).collect()

    def try_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        with self._failing_as_stage(), self.guarded(hosts.values()):
            return self.run_on(hosts, task)

    def move(
        self, sources: Mapping[int, str], take: HostTask, targets: Mapping[int, str], put: ReceivingTask
    ) -> list[Any]:
        with self._failing_as_stage(), self.guarded({*sources.values(), *targets.values()}):
            return move(self.session.sparkContext, self.environment, sources, take, targets, put)

    @contextmanager
    def _failing_as_stage(self) -> Iterator[None]:
        """Within it, what Spark could not carry out is `StageFailed`."""
        try:
            yield
        except Py4JJavaError as error:
            if self.stopped:
                raise
            raise StageFailed(str(error)) from error


@contextmanager
def tagged(context: SparkContext, tag: str) -> Iterator[None]:
    """Within it, jobs of this thread have the tag. The group by which Spark stops a query stays theirs."""
    interrupts = context.getLocalProperty(INTERRUPTS)
    context.addJobTag(tag)
    # A task that waits for what a frozen host keeps would otherwise take a slot of a healthy one for minutes.
    context.setLocalProperty(INTERRUPTS, "true")
    try:
        yield
    finally:
        context.setLocalProperty(INTERRUPTS, interrupts)  # type: ignore[arg-type]
        context.removeJobTag(tag)
