"""Where a task of Spark's runs: a Python process of an executor, or in local mode of the driver."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.cluster.spark.spark_host import executor_pid, spark_host
from afspark.task.task_environment import SegmentEnvironment


@dataclass(frozen=True, kw_only=True)
class SparkEnvironment(SegmentEnvironment):
    """The host is found where the task runs: the executor above this process knows its name."""

    driver_host: str

    @property
    def host(self) -> str:
        return spark_host(self.driver_host)

    @property
    def process(self) -> int:
        executor = executor_pid()
        return super().process if executor is None else executor
