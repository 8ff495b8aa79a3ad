"""All that the coordinator asks of the place where tasks run. Spark is one such place, this process another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from afspark.clock import Clock
from afspark.cluster.liveness import HostFailure
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.push.receiver.receiver_environment import ReceiverEnvironment
from afspark.task.backup_writes import BackgroundWrite
from afspark.task.stage_inputs import StageInput, UserCode
from afspark.task.task_environment import TaskEnvironment

#: What a task does, given where it runs and its number among the tasks of the job; it travels to other processes.
HostTask = Callable[[TaskEnvironment, int], Iterable[Any]]


#: The same with what others have sent to it.
ReceivingTask = Callable[[TaskEnvironment, int, list[Any]], Iterable[Any]]


class StageFailed(Exception):
    """A task of a stage died each time it was tried, or its host does not answer; nothing is known of the workers of
    that stage.
    """


class Cluster(Protocol):
    """Hosts with task slots, and whatever runs there."""

    @property
    def clock(self) -> Clock:
        """The driver's."""

    @property
    def receiver_environment(self) -> ReceiverEnvironment:
        """That of receivers in the driver's process, and how workers reach receivers."""

    @property
    def driver_host(self) -> str: ...

    @property
    def stopped(self) -> bool:
        """Whether it will never run anything again."""

    def slots_by_host(self) -> dict[str, int]:
        """Task slots of every host that lives, and answers."""

    def silent_hosts(self) -> frozenset[str]:
        """Hosts that do not answer, though nobody has said that they have ended."""

    def heed(self, *, standby: bool, elsewhere: bool) -> None:
        """From now on secondaries could take the place of workers whose host is away (``standby``), or workers are
        restored on other hosts at once (``elsewhere``): so long, and no longer, hosts are waited for.
        """

    def failures(self) -> Sequence[HostFailure]:
        """The last executors that were missed, oldest first: since when, and when the driver knew."""

    def detection_seconds(self) -> float | None:
        """Seconds from any failure of a host until the driver knows, at most; None if there is no limit."""

    def in_background(self, job: Callable[[], None]) -> BackgroundWrite:
        """Begins a job of the driver that writes something, while the driver goes on."""

    def run_stage(
        self, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], inputs: Sequence[StageInput]
    ) -> list[TaskReport]:
        """Brings the items of all inputs to workers of one operator, all or some, which carry out their requests.

        The reports of those that were heard of. A task may run several times, and elsewhere than at the worker's
        home; `StageFailed` if one never came to its end, or waited for a host that does not answer.
        """

    def run_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        """All that comes of ``task(environment, number)``, run once for each number in ``hosts``, from 0 without gaps,
        preferably on its host.
        """

    def try_on(self, hosts: Mapping[int, str], task: HostTask) -> list[Any]:
        """The same as `run_on`; `StageFailed` if a task never came to its end, or waited for a silent host."""

    def move(
        self, sources: Mapping[int, str], take: HostTask, targets: Mapping[int, str], put: ReceivingTask
    ) -> list[Any]:
        """All that comes of ``put(environment, number, contents)``, run once for each number in ``targets``.

        ``take(environment, number)`` runs once for each number in ``sources`` and gives pairs: the number of a target,
        and a content for it. Both run preferably on the hosts named; `StageFailed` if one never came to its end.
        """
