"""Where a task of a local cluster runs: a host that is a folder of this machine."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import dataclass

from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.task_environment import SegmentEnvironment


@dataclass(frozen=True, kw_only=True)
class LocalEnvironment(SegmentEnvironment):
    """``dies_at``: the process is killed when its worker comes to that phase; ``loses_state``: its state with it."""

    name: str
    dies_at: FaultPhase | None = None
    loses_state: bool = False

    @property
    def host(self) -> str:
        return self.name

    def probe(self, config: OperatorConfig, worker: int, batch: Batch, phase: FaultPhase) -> None:
        if phase is self.dies_at:
            if self.loses_state:
                shutil.rmtree(self._directory(config, worker), ignore_errors=True)
            os.kill(os.getpid(), signal.SIGKILL)
        super().probe(config, worker, batch, phase)
