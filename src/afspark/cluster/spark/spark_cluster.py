"""Spark as a `Cluster`: executors offer slots, and every stage is a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from afspark.clock import SystemClock
from afspark.cluster.cluster import HostTask, ReceivingTask, StageFailed
from afspark.cluster.spark.anchors import anchor, driver_host, slots_by_host
from afspark.cluster.spark.spark_environment import SparkEnvironment
from afspark.cluster.spark.stages import move, run_stage
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.task.backup_writes import BackgroundWrite, ThreadedJob
from afspark.task.stage_inputs import StageInput, UserCode


class SparkCluster:
    """The cluster of a Spark session. ``environment``: what its tasks find where they run."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self.clock = SystemClock()
        self.receiver_environment = ReceiverEnvironment()
        self.driver_host = driver_host(session.sparkContext)
        self.environment = SparkEnvironment(driver_host=self.driver_host)

    @property
    def stopped(self) -> bool:
        context: Any = self.session.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())

    def slots_by_host(self) -> dict[str, int]:
        return slots_by_host(self.session.sparkContext)

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return ThreadedJob(job)

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        try:
            return run_stage(self.session.sparkContext, self.environment, config, work, requests, inputs)
        except Py4JJavaError as error:
            if self.stopped:
                raise
            raise StageFailed(str(error)) from error

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        return anchor(self.session.sparkContext, hosts).flatMap(partial(task, self.environment)).collect()

    def move(
        self, sources: Mapping[int, str], take: HostTask, targets: Mapping[int, str], put: ReceivingTask
    ) -> list[Any]:
        try:
            return move(self.session.sparkContext, self.environment, sources, take, targets, put)
        except Py4JJavaError as error:
            if self.stopped:
                raise
            raise StageFailed(str(error)) from error
