"""What a task has at hand while it carries out one request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from afspark.model.operator import Operator
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Identity
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.replicas import ReplicaRole
from afspark.protocol.requests import TaskRequest
from afspark.resident.storage import StateAddress, StateStorage
from afspark.task.feed import Feed
from afspark.task.pane_states import PaneStates
from afspark.task.stopwatch import Stopwatch
from afspark.task.task_environment import TaskEnvironment

#: How long a task waits for another one to leave the state.
LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class TaskContext:
    """One request, the code and the items it is about, and the place where the task runs."""

    environment: TaskEnvironment
    config: OperatorConfig
    request: TaskRequest
    operator: Operator
    feed: Feed

    @property
    def host(self) -> str:
        return self.environment.host

    @cached_property
    def address(self) -> StateAddress:
        """Where the worker's state is, or will be."""
        return self.environment.address(self.config, self.request.worker)

    @cached_property
    def clock(self) -> Stopwatch:
        return Stopwatch(self.environment.clock)

    def probe(self, phase: FaultPhase) -> None:
        """A moment at which a failure can be injected."""
        self.environment.probe(self.config, self.request.worker, self.request.batch, phase)

    @property
    def identity(self) -> Identity:
        """Whose state the task works on."""
        return Identity(
            query_id=self.config.query_id,
            fingerprint=self.config.fingerprint,
            operator=self.config.operator_name,
            worker=self.request.worker,
            workers=self.config.workers,
            checkpoint=self.config.checkpoint,
        )

    @property
    def is_secondary(self) -> bool:
        """Whether the task is about a replica that follows another one."""
        return self.request.role is ReplicaRole.SECONDARY

    @property
    def in_steps(self) -> bool:
        """Whether parts of the batch become final before it ends."""
        return self.config.in_steps(self.request.punctuation_plan)

    @property
    def finds_steps(self) -> bool:
        """Whether the store may have backups of steps of the batch: its own, or of a task under another tolerance."""
        return self.config.could_step and not self.request.punctuation_plan

    def panes(self, home: StateStorage) -> PaneStates:
        """The states at ``home``, which opens them once."""
        window, first = self.config.window, self.request.batch_time.needed_from
        specs = self.operator.states()
        return home.attach("panes", lambda columns: PaneStates.under(window, columns, specs, first=first))
