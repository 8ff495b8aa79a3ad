"""What a task has at hand while it carries out one request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from afspark.model.operator import Operator
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Identity
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.requests import TaskRequest
from afspark.resident.storage import StateAddress, StateStorage
from afspark.task.feed import Feed
from afspark.task.pane_states import PaneStates
from afspark.task.stopwatch import Stopwatch

#: How long a task waits for another one to leave the state.
LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class TaskContext:
    """One request, the code and the items it is about, and where the state lives."""

    config: OperatorConfig
    request: TaskRequest
    operator: Operator
    feed: Feed
    address: StateAddress
    host: str
    #: called at every moment at which a failure can be injected
    probe: Callable[[FaultPhase], None]
    clock: Stopwatch = field(default_factory=lambda: Stopwatch({}))

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
    def in_steps(self) -> bool:
        """Whether parts of the batch become final before it ends."""
        return self.config.in_steps(self.request.punctuation_plan)

    def panes(self, home: StateStorage) -> PaneStates:
        """The states at ``home``, which opens them once."""
        window, first = self.config.window, self.request.batch_time.needed_from
        specs = self.operator.states()
        return home.attach("panes", lambda columns: PaneStates.under(window, columns, specs, first=first))
