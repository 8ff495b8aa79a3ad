"""Carries out recovery plans: puts a worker's state in place, at the version before the batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import singledispatch

from afspark.errors import SegmentError
from afspark.policies import RecoveryPlan, RestoreChain, StartEmpty
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.losses import LossEvidence
from afspark.protocol.parcels import pack_packets
from afspark.resident.storage import StateStorage
from afspark.store import ObjectRef, extend, load_chain
from afspark.task.intake import LaneAway
from afspark.task.task_context import LOCK_SECONDS, TaskContext
from afspark.task.unnamed_backups import find_unnamed
from afspark.task.waiting_feedback import waiting_feedback

Chain = tuple[ObjectRef, ...]


class UndeclaredLoss(Exception):
    """The store has steps of an incarnation whose loss nobody has counted; only the driver can."""

    def __init__(self, trace: LossEvidence) -> None:
        super().__init__(trace)
        self.trace = trace


def build_state(task: TaskContext, *, recover: bool) -> int:
    """Puts new state in place and returns the number of restored cells; it counts as missing until it is whole."""
    started = task.clock.start()
    if task.in_steps:
        _shut_out_others(task)
    cells = 0
    with task.address.create(task.identity, task.request.incarnation) as home, home.lock(LOCK_SECONDS):
        home.raise_fence(task.request.fence)
        # A driver that died in the first batch has left no record, but perhaps backups of its steps.
        if recover or task.in_steps:
            task.probe(FaultPhase.RECOVERING)
            cells = _restore(task, home, *_chains(task.request.recovery))
        home.restored(task.request.batch - 1)
    task.clock.lap("recovery" if recover else "creation", started)
    return cells


def damage_noted(home: StateStorage) -> tuple[str, ...]:
    """The damaged objects that were passed over when the state was restored."""
    return tuple(json.loads(home.noted() or "[]"))


def note_damage(home: StateStorage, names: Sequence[str]) -> None:
    """Keeps with the state, until its first batch ends, what was damaged: a process may die before it can report."""
    home.note(json.dumps(list(names)))


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
    if task.in_steps:
        unnamed = find_unnamed(task.config, request)
        undeclared = None if task.config.exact else unnamed.undeclared(request, task.config.window)
        if undeclared is not None:
            raise UndeclaredLoss(undeclared)
        rotten = unnamed.rotten
        if unnamed.progress is not None:
            for backup in unnamed.progress.backups:
                chain, previous = extend(chain, previous, backup)
            home.restored_at(request.batch, unnamed.progress.to_text().encode(), unnamed.progress.newest.number)
    loaded = load_chain(task.config.store, chain, previous)
    cells = task.panes(home).restore(loaded.images, request.batch_time.needed_from)
    for port, packets in waiting_feedback(loaded.images, request.batch - 1).items():
        home.keep(request.batch - 1, port, pack_packets(packets))
    damaged = [*(damage.name for damage in loaded.damaged), *rotten]
    if damaged:
        note_damage(home, damaged)
    return cells
