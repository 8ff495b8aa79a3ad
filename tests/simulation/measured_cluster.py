"""A simulated cluster on which everything takes its time, so that the controller has something to go by.

How long stages take, and what tasks say that they took, is drawn: with phases of ease and of load, which last for some
batches. What really passes while a test runs is told to nobody, so that a seed gives the same decisions every time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.protocol.task_work import TaskWork
from afspark.task.stage_inputs import StageInput, UserCode
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.world import World

#: By how much a phase makes everything take longer.
LOADS = (0.02, 0.3, 1.0, 10.0)


class Load:
    """What is drawn for one schedule; it outlives drivers."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"load-{seed}")
        self._level, self._left = 1.0, 0
        #: after how many seconds a driver knows of a failure; None: nobody knows
        self.detection: float | None = self._rng.choice((None, 0.1, 1.0, 3.0))

    def new_batch(self) -> None:
        """The next phase may begin."""
        self._left -= 1
        if self._left <= 0:
            self._level, self._left = self._rng.choice(LOADS), self._rng.randint(1, 4)

    def seconds(self) -> float:
        """What a stage takes."""
        return self._level * self._rng.uniform(0.05, 0.5)

    def work(self, seconds: float, real: TaskWork) -> TaskWork:
        """What a task of such a stage says that it took, with the items that it really had."""
        rng = self._rng
        return TaskWork(
            items=real.items,
            bytes=real.bytes,
            seconds=seconds * rng.uniform(0.2, 0.9),
            cpu=seconds * rng.uniform(0.1, 1.0),
            sent=round(1000 * rng.random()),
            backup_cpu=seconds * rng.uniform(0.0, 0.5),
            backup_seconds=seconds * rng.uniform(0.0, 0.1),
            uploaded=round(rng.choice((0.0, 100.0, 10_000.0)) * rng.random()),
            upload_seconds=seconds * rng.random(),
        )


class MeasuredCluster(SimulatedCluster):
    """Stages take as long, and tasks say that they took as much, as ``load`` has drawn."""

    def __init__(self, around: World, load: Load, lag: int = 0) -> None:
        super().__init__(around, lag=lag)
        self._load = load

    def detection_seconds(self) -> float | None:
        return self._load.detection

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        seconds = self._load.seconds()
        self.world.now += seconds
        reports = super().run_stage(config, work, requests, inputs)
        return [replace(report, work=self._load.work(seconds, report.work)) for report in reports]
