"""One worker's task for one batch: looks at the resident state, decides by the life cycle's table, carries it out.

Nothing here decides that a state is lost: only the driver does.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

from afspark.errors import AfsparkError, NoSpace, SegmentError
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.model.operator import Operator
from afspark.numbers import Batch
from afspark.policies import CompleteState
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.lifecycle import Action, Wanted, decide
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import Restored, Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident.mapped_columns import fits_now
from afspark.resident.storage import StateStorage
from afspark.task.backup_numbers import is_left, take_up
from afspark.task.bad_item_search import as_failure
from afspark.task.completing import CannotComplete, complete
from afspark.task.damage_note import noted_damage
from afspark.task.exchanging import leave_exchange
from afspark.task.feed import Feed
from afspark.task.pane_states import PaneStates
from afspark.task.process import BatchApplication
from afspark.task.rest_backup import RestBackup, put_at_rest, take_at_rest
from afspark.task.restore import UndeclaredLoss, build_state
from afspark.task.task_context import LOCK_SECONDS, TaskContext
from afspark.task.task_environment import TaskEnvironment

LOG = logging.getLogger("afspark")


def serve(
    environment: TaskEnvironment, config: OperatorConfig, request: TaskRequest, operator: Operator, feed: Feed
) -> TaskReport:
    """Carries out ``request``; every outcome is a report, only the death of the process is an exception."""
    report = _served(environment, config, request, operator, feed)
    if report.status is not Status.APPLIED:
        # Others may wait for what this worker would have learned.
        leave_exchange(request, f"worker {request.worker} is {report.status}")
    return report


def _served(
    environment: TaskEnvironment, config: OperatorConfig, request: TaskRequest, operator: Operator, feed: Feed
) -> TaskReport:
    host = environment.host
    if host != request.home:
        return _answer(request, host, Status.MISPLACED)
    try:
        return _Task(TaskContext(environment, config, request, operator, feed)).run()
    except UndeclaredLoss as found:
        detail = f"gone with what incarnation {found.trace.incarnation} had made final in this batch"
        return _answer(request, host, Status.MISSING, detail=detail, trace=found.trace)
    except NoSpace as error:
        if _made_room(environment, config, error):
            # The batch is applied once more.
            return _answer(request, host, Status.BUSY, detail=str(error))
        return _answer(request, host, Status.FAILED, error=error)
    except (SegmentError, ExchangeFailed) as error:
        return _answer(request, host, Status.BUSY, detail=str(error))
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        return _answer(request, host, Status.FAILED, error=as_failure(error, operator))


def _made_room(environment: TaskEnvironment, config: OperatorConfig, error: NoSpace) -> bool:
    """Waits until backups that take room beside this state, or others of the host, are in the store; whether that made
    any, or somebody else has done so meanwhile.
    """
    try:
        written = environment.upload_all(config)
    except AfsparkError:
        return False
    return written > 0 or fits_now(error)


def _answer(request: TaskRequest, host: str, status: Status, **facts: Any) -> TaskReport:
    return TaskReport(worker=request.worker, replica=request.replica, status=status, host=host, **facts)


class _Task:
    def __init__(self, task: TaskContext) -> None:
        self.task, self.request = task, task.request
        request = self.request
        self.wanted = Wanted(
            task.identity,
            request.incarnation,
            request.batch,
            request.hint,
            request.fence,
            replay=request.replay,
            secondary=task.is_secondary,
            promotes=request.promotes,
            skips=request.skips,
            completes_from=request.recovery.since if isinstance(request.recovery, CompleteState) else None,
        )
        self.damaged: tuple[str, ...] = ()
        self.restored: Restored | None = None
        self.rest: RestBackup | None = None

    def run(self) -> TaskReport:
        self.task.probe(FaultPhase.BETWEEN)
        action = decide(self.task.address.examine(), self.wanted)
        if action is Action.CREATE or action is Action.RECOVER:
            self.restored = build_state(self.task, recover=action is Action.RECOVER)
        elif action.refused:
            return self._refused(action)
        home = self.task.address.open()
        if home is None:
            return self._answer(Status.BUSY, "vanished")
        with home.lock(LOCK_SECONDS):
            # Decided again under the lock: an earlier attempt may have ended while this one waited for it.
            action = decide(home.found(), self.wanted)
            LOG.debug("Worker %d, batch %d: %s.", self.request.worker, self.request.batch, action.value)
            if action.refused:
                return self._refused(action)
            if self.request.promotes and home.found().secondary and noted_damage(home):
                # A driver that was started since does not know it.
                return self._answer(Status.MISSING, "built from damaged backups")
            home.raise_fence(self.wanted.fence)
            if self.request.promotes:
                home.promote(self.request.incarnation)
            self.damaged = noted_damage(home, self.request.batch)
            try:
                report = self._carry_out(action, home, self.task.panes(home))
            except CannotComplete as error:
                return self._answer(Status.MISSING, str(error))
            if self.task.is_secondary:
                report = replace(report, damaged=noted_damage(home))
        if self.rest is None or self.request.rest_seconds is None:
            return report
        # Nobody else waits for the state meanwhile.
        put_at_rest(self.task, self.rest, self.request.rest_seconds)
        return replace(report, backups=(self.rest.ref,))

    def _carry_out(self, action: Action, home: StateStorage, panes: PaneStates) -> TaskReport:
        batch = self.request.batch
        if (
            action is Action.ALREADY_APPLIED
            and self.request.rest_seconds is not None
            and home.found().kept_from >= batch
        ):
            # It was restored as of this batch, and has reported nothing.
            self.rest = take_at_rest(self.task, home, panes, feedback=False)
            return self._answer(Status.APPLIED, "at rest", self._waiting(home))
        if action is Action.ALREADY_APPLIED:
            kept = TaskReport.from_json(json.loads(home.report(batch)))
            # What it kept says what waited then.
            pending = self._waiting(home)
            if self.request.rest_seconds is None:
                # A secondary that was promoted had another number then.
                return replace(kept, pending=pending, replica=self.request.replica)
            if not kept.is_whole:
                self.rest = take_at_rest(self.task, home, panes, feedback=not kept.feedback_durable)
            return self._answer(Status.APPLIED, "at rest", pending)
        applies = action in (Action.APPLY, Action.ROLL_BACK_THEN_APPLY) and self.request.apply
        if applies and self.task.in_steps and (action is not Action.APPLY or home.step or is_left(home)):
            # While the mark still tells of the process before, in case this one dies at it.
            take_up(home, self.task.config, self.request)
        if action in (Action.ROLL_BACK_THEN_APPLY, Action.ROLL_BACK, Action.STEP_BACK):
            if action is Action.STEP_BACK:
                home.step_back(batch)
            panes.rollback()
            home.clear_mark()
        if isinstance(self.request.recovery, CompleteState):
            complete(self.task, home, panes, self.request.recovery)
        if self.request.skips and home.found().version < batch - 1:
            home.restored(Batch(batch - 1), home.found().version)
        if applies and self.request.consumes not in (None, self.task.feed.consumed):
            return self._answer(Status.MISSING, "is sent other items than its primary")
        if applies:
            return BatchApplication(self.task, home, panes, damaged=self.damaged, restored=self.restored).run()
        if action not in (Action.CREATE, Action.RECOVER):
            pending = self._waiting(home)
            # Whoever asked for the state alone may complete its recovery in the ledger.
            self.damaged = noted_damage(home, self.request.batch)
            return replace(self._answer(Status.APPLIED, action.value, pending), lacks_batch=True)
        return self._answer(Status.BUSY, action.value)

    def _waiting(self, home: StateStorage) -> tuple[str, ...]:
        """The backups that the store may not have yet. If nobody may be behind, they are uploaded first."""
        if not self.request.spools and home.spooled():
            self.task.environment.upload(self.task.config, self.request.worker)
        return home.spooled()

    def _refused(self, action: Action) -> TaskReport:
        lost = action in (Action.MISSING, Action.STALE)
        return self._answer(Status.MISSING if lost else Status.CONTRADICTORY, action.value)

    def _answer(self, status: Status, detail: str, pending: tuple[str, ...] = ()) -> TaskReport:
        return _answer(
            self.request,
            self.task.host,
            status,
            detail=detail,
            pending=pending,
            seconds=self.task.clock.seconds,
            damaged=self.damaged,
            restored=self.restored,
        )
