"""Carries out recovery plans: puts a worker's state in place, at the version before the batch."""

from __future__ import annotations

import logging
from functools import singledispatch

from afspark.errors import SegmentError
from afspark.numbers import Batch
from afspark.policies import RecoveryPlan, RestoreChain, StartEmpty
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.losses import LossEvidence
from afspark.protocol.parcels import pack_packets
from afspark.protocol.reports import Restored
from afspark.resident.storage import StateStorage
from afspark.store import Chain, extend, load_chain
from afspark.task.backup_numbers import begin_generation
from afspark.task.damage_note import note_damage
from afspark.task.intake import LaneAway
from afspark.task.step_progress import StepProgress
from afspark.task.task_context import LOCK_SECONDS, TaskContext
from afspark.task.unnamed_backups import find_unnamed
from afspark.task.waiting_feedback import waiting_feedback

LOG = logging.getLogger("afspark")


class UndeclaredLoss(Exception):
    """The store has steps of an incarnation whose loss nobody has counted; only the driver can."""

    def __init__(self, trace: LossEvidence) -> None:
        super().__init__(trace)
        self.trace = trace


def build_state(task: TaskContext, *, recover: bool) -> Restored | None:
    """Puts new state in place, which counts as missing until it is whole; what was restored, if anything had to be."""
    started = task.clock.start()
    restored = None
    if task.finds_steps:
        _shut_out_others(task)
    with (
        task.address.create(task.identity, task.request.incarnation, secondary=task.is_secondary) as home,
        home.lock(LOCK_SECONDS),
    ):
        home.raise_fence(task.request.fence)
        # A driver that died in the first batch has left no record, but perhaps backups of its steps.
        if recover or task.finds_steps:
            task.probe(FaultPhase.RECOVERING)
            cells = _restore(task, home, *_chains(task.request.recovery))
            restored = Restored(task.clock.start() - started, cells)
        home.restored(Batch(task.request.batch - 1))
    task.clock.lap("recovery" if recover else "creation", started)
    return restored


def _shut_out_others(task: TaskContext) -> None:
    """Takes the lane, so that a process which still works on a state that is gone here confirms nothing more after
    its backups were looked for. Without a lane at hand the driver has seen to it.
    """
    try:
        task.feed.claim()
    except LaneAway as error:
        raise SegmentError("The receiver of a lost worker does not answer.") from error


@singledispatch
def _chains(plan: RecoveryPlan) -> tuple[Chain, Chain]:
    """The chain of backups that a plan has restored, and the one to fall back on."""
    raise TypeError(f"A state cannot be built by {plan!r}.")


@_chains.register
def _(plan: StartEmpty) -> tuple[Chain, Chain]:
    return (), ()


@_chains.register
def _(plan: RestoreChain) -> tuple[Chain, Chain]:
    return plan.chain, plan.preceded


def _restore(task: TaskContext, home: StateStorage, chain: Chain, previous: Chain) -> int:
    """Loads a chain of backups, and what steps of the batch have added to it; returns the number of cells."""
    request = task.request
    rotten: tuple[str, ...] = ()
    if task.finds_steps:
        unnamed = find_unnamed(task.config, request)
        if (undeclared := unnamed.undeclared(request, task.config)) is not None:
            raise UndeclaredLoss(undeclared)
        begin_generation(home, task.config, request, unnamed.generation, unnamed.progress)
        reached = unnamed.progress or StepProgress()
        rotten = (*unnamed.rotten, *reached.uncovered)
        for backup in reached.backups:
            chain, previous = extend(chain, previous, backup)
        LOG.debug(
            "Worker %d is restored in batch %d as incarnation %d, at %s, from %s.",
            request.worker,
            request.batch,
            request.incarnation,
            dict(reached.positions),
            [backup.name for backup in chain],
        )
    loaded = load_chain(task.config.store, chain, previous)
    cells = task.panes(home).restore(loaded.images, request.batch_time.needed_from)
    before = Batch(request.batch - 1)
    for port, packets in waiting_feedback(loaded.images, before).items():
        home.keep(before, port, pack_packets(packets))
    damaged = [*(damage.name for damage in loaded.damaged), *rotten]
    if damaged:
        note_damage(home, request.batch, damaged)
    return cells
