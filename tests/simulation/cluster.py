"""The cluster of a simulated world: tasks run one by one, and the world decides what becomes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from afspark.clock import Clock
from afspark.cluster.cluster import HostTask, StageFailed
from afspark.cluster.local.local_cluster import TASK_TRIES, LocalCluster, LocalJob, LocalTask
from afspark.coordinator.operator_run import OperatorRun
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import Survivor
from afspark.resident.residents import kept_by
from afspark.store import Store
from afspark.task.backup_writes import BackgroundWrite, DoneAtOnce
from afspark.task.stage_inputs import StageInput, UserCode
from afspark.task.task_environment import TaskEnvironment
from tests.simulation.memory import MemoryAddress, survivors_on
from tests.simulation.storage import WrittenAtOnce
from tests.simulation.world import HostSilent, World, world


class WorldClock:
    """The time of the world at work; waiting takes none."""

    def time(self) -> float:
        return world().now

    def monotonic(self) -> float:
        return world().now

    def sleep(self, seconds: float) -> None: ...


class SimulatedEnvironment:
    """The host at work, with its memory."""

    clock: Clock = WorldClock()

    @property
    def host(self) -> str:
        return world().host

    def address(self, config: OperatorConfig, worker: int) -> MemoryAddress:
        return MemoryAddress((self.host, config.operator_name, worker))

    def survivors(self, config: OperatorConfig) -> list[Survivor]:
        return survivors_on(self.host)

    def drop_secondary(self, config: OperatorConfig, worker: int, incarnation: int) -> None:
        place = (self.host, config.operator_name, worker)
        found = world().memory.get(place)
        if found is not None and found.secondary and found.incarnation == incarnation and not found.locked:
            del world().memory[place]

    def drop_before(self, config: OperatorConfig, worker: int, incarnation: int) -> None:
        place = (self.host, config.operator_name, worker)
        found = world().memory.get(place)
        if found is not None and found.incarnation < incarnation and not found.locked:
            del world().memory[place]

    def release(self, config: OperatorConfig) -> None:
        raise NotImplementedError

    def probe(self, config: OperatorConfig, worker: int, batch: int, phase: FaultPhase) -> None:
        world().task = (self.host, config.operator_name, worker)
        world().point(f"phase {phase.value}")

    def start_write(self, store: Store, name: str, data: bytes) -> BackgroundWrite:
        return WrittenAtOnce(store, name, data)

    def start_upload(self, config: OperatorConfig, worker: int) -> None:
        """The process may end after any part of it."""
        self._upload(config, worker, world().rng.randint(0, 2))

    def upload(self, config: OperatorConfig, worker: int) -> None:
        self._upload(config, worker, 1000)

    def upload_all(self, config: OperatorConfig) -> int:
        raise NotImplementedError

    def uploaded(self, config: OperatorConfig, worker: int) -> None:
        """Nobody measures."""

    def _upload(self, config: OperatorConfig, worker: int, count: int) -> None:
        home = self.address(config, worker).open()
        if home is not None and home.spooled():
            home.upload(config.store, count)


class DelayedJob(DoneAtOnce):
    """A job of the driver that nobody waits for: it is done after a few looks at it, or never if the driver dies."""

    def __init__(self, job: Callable[[], None], looks: int) -> None:
        self.failure = None
        self._job: Callable[[], None] | None = job
        self._looks = looks

    def wait(self, seconds: float | None = None) -> bool:
        self._looks -= 1
        if self._job is not None and (seconds is None or self._looks < 0):
            job, self._job = self._job, None
            self._do(job)
        return self._job is None


class SimulatedCluster(LocalCluster):
    """``lag``: how many looks at a write of the driver are in vain at most: records are behind batches."""

    def __init__(self, around: World, environment: TaskEnvironment | None = None, lag: int = 0) -> None:
        self.world, self.lag = around, lag
        self._environment: TaskEnvironment = environment or SimulatedEnvironment()
        super().__init__(around.slots, clock=self._environment.clock)

    def slots_by_host(self) -> dict[str, int]:
        return dict(self.world.slots)

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return DelayedJob(job, self.world.rng.randint(0, self.lag)) if self.lag else DoneAtOnce(job)

    def environment(self, host: str) -> TaskEnvironment:
        return self._environment

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        """Nothing goes wrong: whoever looks for survivors finds them."""
        found: list[Any] = []
        before = self.world.host
        try:
            for number, self.world.host in hosts.items():
                found += task(self._environment, number)
        finally:
            self.world.host = before
        return found

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        self._at_work = (config, requests)
        return super().run_stage(config, work, requests, inputs)

    def run(self, job: LocalJob) -> list[list[Any]]:
        """What came of each task. If a host falls silent, the others go on; then the stage has failed."""
        found: list[list[Any]] = []
        silent: StageFailed | None = None
        for number, home in job.homes.items():
            try:
                found.append(self._run(home, job.task(number)))
            except HostSilent as error:
                silent = error
        if silent is not None:
            raise StageFailed(str(silent))
        return found

    def _run(self, home: str, task: LocalTask) -> list[Any]:
        here = self.world
        told = partial(self._told, task, *self._at_work)
        for _ in range(TASK_TRIES):
            here.wake_zombies()
            here.point("a task is sent")
            host = home if home in here.slots else min(here.slots)
            if here.forgets(host, told, self._at_work[1]):
                continue
            ended, rows = here.attempt(host, told)
            if ended:
                return list(rows)
        raise StageFailed("a task died too often")

    def _told(self, task: LocalTask, config: OperatorConfig, requests: Sequence[TaskRequest]) -> list[Any]:
        """What comes of a task; the trace has its reports."""
        rows = task(self._environment)
        for report in rows:
            if isinstance(report, TaskReport):
                request = next(one for one in requests if one.replica_id == report.replica_id)
                request = next((one for one in request.following if one.batch == report.batch), request)
                self.world.heard(config.operator_name, request, report)
                self.world.say(
                    f"  {config.operator_name}/{request.worker}.{request.incarnation} batch {request.batch}"
                    f" {request.hint.value} -> {report.status.value} {report.detail}"
                    + "".join(f" backup of {backup.cells}{' full' if backup.full else ''}" for backup in report.backups)
                )
        return rows


def kept_at(run: OperatorRun, worker: int, batch: int, port: str) -> bytes:
    """What a worker keeps, read at its home, as a sink reads it."""
    here = world()
    before, here.host = here.host, run.homes[worker]
    try:
        return kept_by(SimulatedEnvironment(), run.residents, worker, batch, port)
    finally:
        here.host = before


class Faults:
    """A plan of failures that asks the world: for the moments of a batch that belong to the driver."""

    def fails_at(self, batch: int, phase: Any) -> bool:
        world().point(f"phase {phase.value}")
        return False

    def fails_workers(self, batch: int) -> bool:
        return False
