"""A cluster in one process, without a JVM: hosts are folders, stages are function calls.

Tasks are the ones that Spark runs, and meet what they meet there: they are tried again when their process dies, they
end up on the wrong host, what was sent to them is kept until it is lost, and hosts come and go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from afspark.clock import Clock, SystemClock
from afspark.cluster.cluster import HostTask, ReceivingTask, StageFailed
from afspark.cluster.liveness import Absence, HostFailure
from afspark.cluster.local.local_environment import LocalEnvironment
from afspark.cluster.local.local_frame import LocalFrame
from afspark.cluster.local.map_outputs import MapOutputs
from afspark.cluster.local.processes import Answer, Processes, TaskDied, forked, in_process, side_by_side, started_anew
from afspark.errors import UsageError
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Parcel
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest, homes_of, readers_of
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.task.backup_writes import BackgroundWrite, DoneAtOnce
from afspark.task.receiving import receive
from afspark.task.sending import send_batches, send_chunks, send_kept
from afspark.task.stage_inputs import (
    Addressed,
    DirectInput,
    FrameInput,
    OutputInput,
    SentInput,
    SourceInput,
    StageInput,
    UserCode,
    hosts_of,
    split_inputs,
)
from afspark.task.task_environment import TaskEnvironment

#: How often a task is tried, as by Spark.
TASK_TRIES = 4

#: A task with everything it needs but the place where it runs.
LocalTask = Callable[[TaskEnvironment], list[Any]]


@dataclass(frozen=True)
class LocalJob:
    """Tasks that run side by side. ``kind``: "map" (they send), "reduce" (something was sent to them) or "job"."""

    kind: str
    #: hosts by number of the task
    homes: Mapping[int, str]
    #: makes the task of a number, for every try anew
    task: Callable[[int], LocalTask]
    #: whether tasks wait for each other
    together: bool = False


@dataclass(frozen=True)
class _Death:
    """How a process will end."""

    phase: FaultPhase
    lose_state: bool


class LocalCluster:
    """Hosts with slots; change ``slots`` whenever hosts come or go."""

    driver_host = "127.0.0.1"
    stopped = False

    def __init__(
        self, slots: Mapping[str, int], *, processes: Processes = in_process, clock: Clock | None = None
    ) -> None:
        self.slots = dict(slots)
        #: hosts that do not answer, though nobody has said that they are gone
        self.silent: set[str] = set()
        self.clock: Clock = clock or SystemClock()
        self.receiver_environment = ReceiverEnvironment()
        #: called before each try of a task, in the driver: (kind of job, number of the task, number of the try)
        self.before: Callable[[str, int, int], None] | None = None
        #: where the next such task runs instead of its home: (kind of job, number of the task) -> host
        self.astray: dict[tuple[str, int], str] = {}
        self._processes = processes
        self._outputs = MapOutputs(list)
        self._doomed: dict[tuple[str, int], _Death] = {}

    # --- what can go wrong ----------------------------------------------------------------------------------

    def kill(self, operator: str, worker: int, phase: FaultPhase, *, lose_state: bool = False) -> None:
        """The worker's next process is killed when it comes to ``phase``. Its state stays, unless it is lost too."""
        self._doomed[operator, worker] = _Death(phase, lose_state)

    def forget_outputs(self) -> None:
        """Everything that tasks have sent in the stage at work is lost; whoever needs it has it sent again."""
        self._outputs.forget()

    # --- what the coordinator asks --------------------------------------------------------------------------

    def slots_by_host(self) -> dict[str, int]:
        return {host: number for host, number in self.slots.items() if host not in self.silent}

    def silent_hosts(self) -> frozenset[str]:
        return frozenset(self.silent)

    def heed(self, *, standby: bool, elsewhere: bool) -> None: ...

    def failures(self) -> Sequence[HostFailure]:
        now = self.clock.monotonic()
        return [HostFailure(host, host, Absence.SILENT, now, now) for host in sorted(self.silent)]

    def detection_seconds(self) -> float | None:
        return None

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        return DoneAtOnce(job)

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        return self._rows(LocalJob("job", hosts, lambda number: partial(_on_host, task, number)))

    def try_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        self._refuse_silent(hosts.values())
        return self.run_on(hosts, task)

    def move(
        self, sources: Mapping[int, str], take: HostTask, targets: Mapping[int, str], put: ReceivingTask
    ) -> list[Any]:
        sent = self._rows(LocalJob("job", sources, lambda number: partial(_on_host, take, number)))
        inboxes = {target: [content for number, content in sent if number == target] for target in targets}
        return self._rows(LocalJob("job", targets, lambda number: partial(_put, put, number, inboxes[number])))

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        self._refuse_silent(hosts_of(requests, inputs))
        direct, sent = split_inputs(inputs, keyed=work.keyed)
        senders = [sender for one in sent for sender in _senders(config, work, requests, one)]
        homes = {number: home for number, (home, _) in enumerate(senders)}
        self._outputs = MapOutputs(lambda: self._rows(LocalJob("map", homes, lambda number: senders[number][1])))
        exchanges = any(request.exchange is not None for request in requests)

        def task(worker: int) -> LocalTask:
            inbox = self._outputs.of(worker) if senders else []
            made = partial(_receive, config, work, tuple(requests), direct, worker, inbox)
            death = self._doomed.pop((config.operator_name, worker), None)
            return made if death is None else partial(_killed, death, exchanges, made)

        kind = "reduce" if senders else "job"
        return self._rows(LocalJob(kind, homes_of(requests), task, together=exchanges))

    def _refuse_silent(self, hosts: Iterable[str]) -> None:
        if silent := self.silent.intersection(hosts):
            raise StageFailed(f"{', '.join(sorted(silent))} does not answer")

    # --- tasks ----------------------------------------------------------------------------------------------

    def environment(self, host: str) -> TaskEnvironment:
        """What tasks find on a host."""
        return LocalEnvironment(name=host)

    def run(self, job: LocalJob) -> list[list[Any]]:
        """What came of each task. They run side by side, or one after the other if somebody interferes."""
        answers: dict[int, Answer] = dict.fromkeys(job.homes, (False, "not tried"))
        together = self.before is None or job.together
        if together:
            answers = self._tried(job, job.homes)
        for number in job.homes:
            for attempt in range(int(together), TASK_TRIES):
                if answers[number][0]:
                    break
                if self.before is not None:
                    self.before(job.kind, number, attempt)
                answers |= self._tried(job, [number])
            ended, why = answers[number]
            if not ended:
                raise StageFailed(f"task {number} of a {job.kind} died {TASK_TRIES} times, the last one: {why}")
        return [result for _, result in answers.values()]

    def _rows(self, job: LocalJob) -> list[Any]:
        return [row for rows in self.run(job) for row in rows]

    def _tried(self, job: LocalJob, numbers: Iterable[int]) -> dict[int, Answer]:
        tasks = {number: partial(job.task(number), self.environment(self._host(job, number))) for number in numbers}
        processes = side_by_side if job.together else self._processes
        return dict(zip(tasks, processes(*tasks.values()), strict=True))

    def _host(self, job: LocalJob, number: int) -> str:
        host = self.astray.pop((job.kind, number), job.homes[number])
        answering = self.slots_by_host()
        return host if host in answering else min(answering)


def _senders(
    config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], stage_input: SentInput
) -> list[tuple[str, LocalTask]]:
    """The tasks that send what an input has, and the hosts where it is."""
    now = requests[0].batch_time.now
    match stage_input:
        case SourceInput():
            homes: Mapping[int, str] = readers_of(stage_input.shares, requests)
            return [
                (home, partial(_send_chunks, config, work, stage_input, now, worker)) for worker, home in homes.items()
            ]
        case OutputInput():
            homes = stage_input.homes
            return [
                (home, partial(_send_kept, config, work, stage_input, now, worker)) for worker, home in homes.items()
            ]
        case FrameInput():
            partitions = stage_input.frame.partitions if isinstance(stage_input.frame, LocalFrame) else None
            if partitions is None:
                raise UsageError("A DataFrame can only be read by Spark.", remedy="Use a source, or a Spark session.")
            hosts = list(homes_of(requests).values())
            return [
                (hosts[number % len(hosts)], partial(_send_partition, config, work, stage_input, now, number, batches))
                for number, batches in enumerate(partitions)
            ]


# --- in the tasks' processes --------------------------------------------------------------------------------


def _on_host(task: HostTask, number: int, environment: TaskEnvironment) -> list[Any]:
    return list(task(environment, number))


def _put(task: ReceivingTask, number: int, inbox: list[Any], environment: TaskEnvironment) -> list[Any]:
    return list(task(environment, number, inbox))


def _send_chunks(
    config: OperatorConfig,
    work: UserCode,
    stage_input: SourceInput,
    now: float,
    worker: int,
    _: TaskEnvironment,
) -> list[Addressed]:
    return list(send_chunks(config, work, stage_input, now, [worker]))


def _send_partition(
    config: OperatorConfig,
    work: UserCode,
    stage_input: FrameInput,
    now: float,
    number: int,
    batches: Sequence[pa.RecordBatch],
    _: TaskEnvironment,
) -> list[Addressed]:
    return send_batches(config, work, stage_input.name, stage_input.transforms, now, batches, number)


def _send_kept(
    config: OperatorConfig,
    work: UserCode,
    stage_input: OutputInput,
    now: float,
    worker: int,
    environment: TaskEnvironment,
) -> list[Addressed]:
    return list(send_kept(environment, config, work, stage_input, now, [worker]))


def _receive(
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    direct: Sequence[DirectInput],
    worker: int,
    inbox: list[Parcel],
    environment: TaskEnvironment,
) -> list[TaskReport]:
    # Every task has an operator of its own, as if it had come from another process.
    own = replace(work, operator=cloudpickle.loads(config.pristine))
    return list(receive(environment, config, own, requests, direct, iter([(worker, inbox)])))


def _killed(death: _Death, exchanges: bool, task: LocalTask, environment: TaskEnvironment) -> list[Any]:
    """Runs the task in a process of its own, which is killed if it comes to that phase."""
    assert isinstance(environment, LocalEnvironment)
    fatal = partial(task, replace(environment, dies_at=death.phase, loses_state=death.lose_state))
    ended, result = started_anew(fatal) if exchanges else forked(fatal)[0]
    if not ended:
        raise TaskDied(result)
    return list(result)
