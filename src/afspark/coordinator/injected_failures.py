"""The driver's part in a failure of the whole system that was asked for: workers fail where they live."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from afspark.cluster.cluster import Cluster
from afspark.coordinator.operator_run import OperatorRun
from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.task_environment import TaskEnvironment


def fail_workers(cluster: Cluster, runs: Sequence[OperatorRun], batch: Batch, phase: FaultPhase) -> None:
    """Has the workers of all operators fail that the plan of failures names for ``phase`` of ``batch``."""
    for run in runs:
        cluster.run_on(run.homes, partial(_fail, run.config, batch, phase))


def _fail(
    config: OperatorConfig, batch: Batch, phase: FaultPhase, environment: TaskEnvironment, worker: int
) -> tuple[()]:
    environment.probe(config, worker, batch, phase)
    return ()
