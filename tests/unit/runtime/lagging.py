"""A rig whose commit records, or whose backups, are behind its batches for as long as nobody waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.cluster.local.processes import in_process
from afspark.errors import AfsparkError
from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.task.backup_writes import BackgroundWrite, DoneAtOnce
from afspark.task.task_environment import TaskEnvironment
from tests.simulation.cluster import DelayedJob
from tests.unit.runtime.conftest import MakeRig
from tests.unit.runtime.sparkless import Hosts

#: Nobody looks so often.
NEVER = 10**9


class Lag(Enum):
    """What is behind the batches."""

    NOTHING = "nothing"
    RECORDS = "records"
    BACKUPS = "backups"


@dataclass(frozen=True, kw_only=True)
class WatchedEnvironment(LocalEnvironment):
    """Notes in a file which batches workers really apply. What is spooled is uploaded at once, or not before somebody
    waits for it.
    """

    log: Path
    uploads: bool

    def probe(self, config: OperatorConfig, worker: int, batch: Batch, phase: FaultPhase) -> None:
        if phase is FaultPhase.BACKING_UP:
            with self.log.open("a") as file:
                file.write(f"{config.operator_name} {worker} {batch}\n")
        super().probe(config, worker, batch, phase)

    def start_upload(self, config: OperatorConfig, worker: int) -> None:
        if self.uploads:
            with suppress(AfsparkError):
                self.upload(config, worker)


class LaggingHosts(Hosts):
    """Jobs of the driver are done when it waits for them, if ``lag`` is that of records."""

    def __init__(self, log: Path, lag: Lag, **given: Any) -> None:
        super().__init__(**{"processes": in_process, **given})
        self.lag, self.log = lag, log
        self.on_host = self._watched

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return DelayedJob(job, NEVER) if self.lag is Lag.RECORDS else DoneAtOnce(job)

    def _watched(self, host: str) -> TaskEnvironment:
        return WatchedEnvironment(name=host, log=self.log, uploads=self.lag is not Lag.BACKUPS)


class LaggingRig:
    """A rig, and the same without any failure or lag to compare it with."""

    def __init__(self, make_rig: MakeRig, lag: Lag, *, hosts: Mapping[str, Any] | None = None, **settings: Any) -> None:
        settings.setdefault("max_replay_seconds", 1000.0)
        self.rig, self.truth = make_rig(**settings)
        self.rig.hosts = LaggingHosts(self.rig.root / "applied", lag, **(hosts or {}))
        self.calm = type(self.rig)(
            self.rig.root / "calm", Hosts(processes=in_process), **{**self.rig.settings, "max_replay_seconds": 0.0}
        )

    def applied(self) -> Counter[tuple[str, int, int]]:
        """How often each worker has applied each batch: (operator, worker, batch)."""
        lines = [line.rsplit(" ", 2) for line in (self.rig.root / "applied").read_text().splitlines()]
        return Counter((operator, int(worker), int(batch)) for operator, worker, batch in lines)

    def again(self) -> set[tuple[str, int, int]]:
        """What was applied more than once; never more than twice."""
        applied = self.applied()
        assert set(applied.values()) <= {1, 2}, applied
        return {one for one, times in applied.items() if times > 1}

    def go(self, *times: float) -> None:
        """As many batches as there are times, planned by Spark at those."""
        for self.rig.now in times:
            self.rig.go(1)

    def assert_as_calm(self, *times: float) -> None:
        """Every cell of every worker is what it is without failures after as many batches, planned at those times."""
        if times:
            for self.calm.now in times:
                self.calm.go(1)
        else:
            self.calm.go(self.rig.committed - self.calm.committed)
        for run in self.rig.driver.runs:
            assert self.rig.cells(run.name) == self.calm.cells(run.name), run.name

    def replayed(self) -> dict[tuple[str, int], int]:
        """By operator and worker how many batches recoveries have had applied again, as the ledger says."""
        found: Counter[tuple[str, int]] = Counter()
        for entry in self.rig.ledger:
            assert entry.recovery is not None and entry.recovery.covered, entry
            found[entry.loss.operator, entry.loss.worker] += entry.recovery.replayed
        return dict(found)
