"""Carries out backup plans: what is written to the store before a batch, or a step of one, is final."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

import pyarrow as pa

from afspark.errors import NoSpace
from afspark.model.state_label import StateLabel
from afspark.model.windows import PaneReport
from afspark.policies import BackupPlan, NoBackup, ThresholdBackup
from afspark.protocol.shipments import Shipping
from afspark.resident.side_files import Delta
from afspark.resident.storage import StateStorage
from afspark.store import ObjectRef, seal
from afspark.store.images import FeedbackPart, ImageKey
from afspark.task.backup_header import BackupHeader
from afspark.task.backup_numbers import backup_name
from afspark.task.outbox import Output
from afspark.task.pane_states import PaneStates
from afspark.task.steps import BatchSteps
from afspark.task.task_context import TaskContext

LOG = logging.getLogger("afspark")

Images = dict[ImageKey, pa.RecordBatch]

#: What a checkpoint says besides: the first pane that whoever takes it needs.
NEEDED_FROM = "needed_from"


@dataclass(frozen=True)
class BackedUp:
    """What a plan has chosen to write: images of states, and whether they begin a new chain."""

    images: Images
    full: bool = False
    #: what has changed since the last checkpoint; None if that one is no state to build on
    changes: Images | None = None


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The states when the step at work has been processed, and what a plan must know besides."""

    panes: PaneStates
    #: for decaying states: the tick that a loss would be counted at
    tick: int | None = None
    #: what follows a damaged object in a chain is never read, so that a new chain has to start here
    damaged: bool = False
    #: a chain was started in an earlier step of the batch
    restarted: bool = False

    def restarts_chain(self, wanted: bool) -> bool:
        """Whether a new chain has to start here, because the plan wants it or the old one is damaged."""
        return (wanted or self.damaged) and not self.restarted


@singledispatch
def choose_images(plan: BackupPlan, at: Moment) -> BackedUp:
    """What ``plan`` has written of the states. A new kind of plan registers here how it is carried out."""
    raise TypeError(f"Nothing says how {plan!r} is carried out.")


@choose_images.register
def _write_nothing(plan: NoBackup, at: Moment) -> BackedUp:
    fading = at.panes.fading
    full = at.restarts_chain(plan.full) and not (fading is not None and fading.moved)
    images: Images = {}
    for name, pane, state in at.panes.named():
        state.update_drift()
        if full:
            # No more than what is durable already, which must not go with the chain that ends here.
            images[StateLabel(name, pane)] = state.dump()
    return BackedUp(images, full)


@choose_images.register
def _write_by_threshold(plan: ThresholdBackup, at: Moment) -> BackedUp:
    panes, fading = at.panes, at.panes.fading
    full = at.restarts_chain(plan.full)
    if fading is not None and fading.moved:
        # Pairs would follow backups in other units.
        full = plan.writes
    if fading is not None and full:
        fading.written()
    images: Images = {}
    changes: Images = {}
    for name, pane, state in panes.named():
        state.update_drift()
        theta = plan.limit(name, pane)
        pairs = state.issue(theta if fading is None else fading.threshold(theta, at.tick), everything=plan.recheck)
        if pairs is not None:
            changes[StateLabel(name, pane)] = pairs
        if full:
            images[StateLabel(name, pane)] = state.dump()
    same_units = fading is None or not fading.moved
    return BackedUp(images if full else changes, full, changes if same_units else None)


def stamped_images(images: Images, panes: PaneStates) -> Images:
    """The images as they go into a backup: those of decaying states name the units they are in."""
    fading = panes.fading
    return {key: image if fading is None else fading.stamped(image) for key, image in images.items()}


#: For the report of a batch, and what file systems round up.
_REPORT_ROOM = 2**15


class BackupTask:
    """Writes the backups of one worker in one batch."""

    def __init__(self, task: TaskContext, steps: BatchSteps) -> None:
        self.config, self.request, self.steps = task.config, task.request, steps
        self.plan = task.request.backup
        self._states = tuple(task.operator.states())

    def back_up(self, home: StateStorage, panes: PaneStates, output: Output) -> bool:
        """Begins to write what must be durable before the step at work is final; whether its feedback will be."""
        moment = Moment(
            panes=panes,
            tick=self.steps.tick(output.panes),
            damaged=bool(self.steps.damaged),
            restarted=any(backup.full for backup in self.steps.writes.all),
        )
        chosen = choose_images(self.plan, moment)
        images = stamped_images(chosen.images, panes)
        waiting = sum(batch.num_rows for sent in output.feedback.values() for batch in sent)
        durable = waiting > self.plan.items
        if durable:
            for target, sent in output.feedback.items():
                for number, batch in enumerate(sent):
                    images[FeedbackPart(target, self.request.batch, number)] = batch
        # A state of which there is nothing begins a new chain as any other.
        if images or chosen.full or self.steps.needs_backup(output.panes):
            self._write(home, images, full=chosen.full, seen=output.panes, spare=_room_for(output))
        if self.request.shipping is not None and chosen.changes is not None:
            self._keep_for_secondary(home, stamped_images(chosen.changes, panes), self.request.shipping)
        return durable or waiting == 0

    def step_closed(self) -> None:
        self.plan = self.plan.after_step()

    def make_sure(self, home: StateStorage, panes: PaneStates) -> None:
        """Makes true what a resumed state believes.

        It takes a backup for durable that may not be. A whole image of what it takes for durable is written before
        any item that counts on it is confirmed.
        """
        if self.steps.progress.writing:
            images: Images = {StateLabel(name, pane): state.dump() for name, pane, state in panes.named()}
            self._write(home, stamped_images(images, panes), full=True, seen=self.steps.progress.panes)
            self.steps.writes.wait()

    def _write(
        self,
        home: StateStorage,
        images: Mapping[ImageKey, pa.RecordBatch],
        *,
        full: bool,
        seen: PaneReport | None,
        spare: int = 0,
    ) -> None:
        # It names those before it, so they have to be durable.
        self.steps.await_durable(None)
        cells = sum(image.num_rows for image in images.values())
        name = backup_name(self.config, self.request, self.steps.number_backup(home))
        data = seal(self._header(full, cells, seen).to_json(), images)
        ref = ObjectRef.of(name, data, cells=cells, full=full)
        if self.request.spools and self._spools(home, name, data, spare):
            self.steps.writes.spooled(ref)
        else:
            self.steps.writes.begin(ref, data)
        self.steps.backed_up(seen)

    def _keep_for_secondary(self, home: StateStorage, changes: Images, shipping: Shipping) -> None:
        """Keeps the checkpoint beside the state; without room for it the secondary is built anew from the store."""
        cells = sum(image.num_rows for image in changes.values())
        needed = {NEEDED_FROM: self.request.batch_time.needed_from}
        data = seal(self._header(False, cells, None).to_json() | needed, changes)
        try:
            home.side_files.write(Delta(self.request.batch, shipping.since).file, data)
        except NoSpace as error:
            LOG.warning("The checkpoint of batch %d does not go to a secondary: %s", self.request.batch, error)

    def _spools(self, home: StateStorage, name: str, data: bytes, spare: int) -> bool:
        """Puts a backup beside the state; False if there is no room, so that the batch has to wait for the store."""
        try:
            home.spool(self.request.batch, name, data, spare)
        except NoSpace as error:
            LOG.warning("A backup of batch %d is not spooled: %s", self.request.batch, error)
            return False
        return True

    def _header(self, full: bool, cells: int, seen: PaneReport | None) -> BackupHeader:
        return replace(
            BackupHeader.of(self.config, self.request),
            theta=self.plan.allows(self._states),
            full=full,
            cells=cells,
            progress=self.steps.progress_with(seen),
        )


def _room_for(output: Output) -> int:
    """What a batch still has to write beside its state when it is backed up."""
    return sum(len(data) for data in output.kept.values()) + _REPORT_ROOM
