"""Where a task of a local cluster runs: a host that is a folder of this machine."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.environment import SegmentEnvironment


@dataclass(frozen=True, kw_only=True)
class LocalEnvironment(SegmentEnvironment):
    """``dies_at``: the process is killed when its worker comes to that phase."""

    name: str
    dies_at: FaultPhase | None = None

    @property
    def host(self) -> str:
        return self.name

    def probe(self, config: OperatorConfig, worker: int, batch: int, phase: FaultPhase) -> None:
        if phase is self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        super().probe(config, worker, batch, phase)
