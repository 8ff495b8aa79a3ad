"""What the driver knows of a worker between two batches, and what becomes of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from afspark.coordinator.recovery.error_budget import ErrorBudget
from afspark.numbers import FIRST_INCARNATION, NO_FENCE, Batch, Fence, Incarnation
from afspark.policies import CompleteState, KeepResident, RecoveryPlan, StartEmpty, counts_as_failure
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import LossEvidence
from afspark.protocol.replicas import Replica, ReplicaId
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.store import CommitRecord, CountedFailure, ObjectRef, WorkerRecord, chain_to_restore, extend
from afspark.store.naming import parse_object_name


@dataclass(frozen=True)
class DurableState:
    """What a lost worker is given back: the state that an ``incarnation`` of it had after batch ``version``.

    An incarnation that came after that one was built from the same backups. Its end takes nothing that was not taken
    before, because it is replayed from there as well.
    """

    version: int
    incarnation: Incarnation | None = None
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: feedback items of that batch that are in no backup
    waiting: int = 0
    #: the thresholds that its backups were made under, where they may be higher than those in force
    older_theta: Mapping[str, float] | None = None
    #: backups that the chain builds on are unknown
    hole: bool = False
    #: batches before ``version`` that it lacks for good, and the items that the worker had got in them
    gap_batches: int = 0
    gap_items: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it is all that the worker had: an approximate policy, or none, may have been in force before."""
        return not self.hole and not self.waiting and not any((self.older_theta or {}).values())

    def completion(self, version: int) -> CompleteState | None:
        """What brings a state of that version here that has followed this one's worker; None if nothing can, or need.

        A full image cannot: it does not say which cells there are no more.
        """
        if version >= self.version or not self.is_whole:
            return None
        origins = [parse_object_name(ref.name) for ref in self.chain]
        lacking = tuple(
            ref for ref, origin in zip(self.chain, origins, strict=True) if origin is None or origin.batch > version
        )
        if None in origins or any(ref.full for ref in lacking):
            return None
        return CompleteState(since=version, until=self.version, chain=lacking)


@dataclass(frozen=True)
class Covered:
    """The newest batch whose effects are durable, and the record that says so; none before the first one."""

    batch: Batch = Batch(-1)  # noqa: RUF009 (a number)
    record: CommitRecord | None = None

    @classmethod
    def by(cls, record: CommitRecord) -> Covered:
        return cls(record.batch, record)

    @property
    def is_whole(self) -> bool:
        """Whether the record is of the batch, and not an older one because others could not be read."""
        return self.batch < 0 if self.record is None else self.record.batch == self.batch

    def completion(self, operator: str, worker: int, version: int) -> CompleteState | None:
        """What brings a copy of a worker to this batch; None if nothing can, or need."""
        if version >= self.batch or self.record is None or not self.is_whole:
            return None
        return self.state_of(operator, worker).completion(version)

    def state_of(self, operator: str, worker: int) -> DurableState:
        """What a worker that is lost now is given back."""
        if self.record is None:
            return DurableState(self.batch)
        known = self.record.operators.get(operator)
        if known is None:
            # It has started with an empty state since.
            return DurableState(self.batch)
        found = next(one for one in known.workers if one.worker == worker)
        chain, previous = chain_to_restore(found)
        return DurableState(self.batch, found.incarnation, chain, previous, found.waiting, found.theta, found.hole)


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """One worker as the driver sees it between two batches."""

    worker: int
    replicas: tuple[Replica, ...]
    incarnation: Incarnation = FIRST_INCARNATION
    #: counted failures so far
    counted_failures: tuple[CountedFailure, ...] = ()
    #: batches this incarnation has completed
    completed: int = 0
    hint: Hint = Hint.CREATE
    #: the last batch that it has applied, or that its backups hold: those since then it has to apply again
    version: int = -1
    chain: tuple[ObjectRef, ...] = ()
    previous: tuple[ObjectRef, ...] = ()
    #: feedback items of the last batch that are in no backup
    waiting: int = 0
    #: the query was stopped after all that it had was durable: until it has completed a batch, nothing is lost with it
    saved: bool = False
    #: its operator was not told yet that it was lost
    recovering: bool = False
    #: feedback items that the failure before this incarnation took
    lost_items: int = 0
    recheck: bool = False
    #: the next backup must be a full image, because the chain has a hole
    restart_chain: bool = False
    #: thresholds under which its last backup was made, if they have been lowered since
    older_theta: Mapping[str, float] | None = None
    #: thresholds are higher than the newest record says
    raised: bool = False
    #: it was a secondary, which its next task makes the primary
    promoting: bool = False
    #: what its state lacks when it is promoted, and the store has
    completing: CompleteState | None = None
    #: the batch at whose end its last checkpoint was taken, on which the next one builds; None if nobody knows
    checkpointed: int | None = None
    #: the batches whose items wait where it lives, and how often operators upstream had made something else by then
    queued: Mapping[Batch, int] = field(default_factory=dict)

    @classmethod
    def at(cls, home: str, *, worker: int, **known: Any) -> WorkerState:
        """A worker with a single replica, which lives at ``home``."""
        return cls(worker=worker, replicas=(Replica(worker=worker, home=home),), **known)

    @property
    def primary(self) -> Replica:
        """The replica that applies batches and that results are read from."""
        return next(replica for replica in self.replicas if replica.is_primary)

    @property
    def home(self) -> str:
        """Where its primary lives."""
        return self.primary.home

    def moved(self, replica: ReplicaId, home: str) -> WorkerState:
        """The same worker, with one of its replicas at another home."""
        replicas = tuple(replace(one, home=home) if one.id == replica else one for one in self.replicas)
        return replace(self, replicas=replicas)

    @property
    def failures(self) -> int:
        return len(self.counted_failures)

    def request(
        self,
        batch: Batch,
        budget: ErrorBudget,
        fence: Fence = NO_FENCE,
        batch_time: BatchTime | None = None,
        *,
        barrier: bool = True,
        past: bool = False,
    ) -> TaskRequest:
        """What its primary is asked to do in a batch. ``past``: it is replayed, and the operator is told afterwards."""
        batch_time, replica = batch_time or BatchTime(), self.primary
        new = self.incarnation > 0 and self.completed == 0 and not self.saved
        fresh = not past and (self.recovering or new)
        return TaskRequest(
            worker=self.worker,
            replica=replica.index,
            batch=batch,
            incarnation=self.incarnation,
            hint=self.hint,
            fence=fence,
            home=replica.home,
            backup=budget.backup_plan(
                batch,
                self.counted_failures,
                full=self.restart_chain or budget.compaction.due(self.chain),
                recheck=self.recheck,
                barrier=barrier,
            ),
            recovery=self._recovery_plan(budget),
            promotes=self.promoting,
            skips=self.promoting and budget.tolerance.leaves_gap,
            missing=budget.missing(self.counted_failures),
            pane_missing=budget.pane_missing(self.counted_failures),
            lost=budget.last_loss(self.counted_failures) if fresh else None,
            lost_items=self.lost_items if fresh else 0,
            counts=self.completed > 0 and not self.raised,
            counted=budget.counted(self.counted_failures),
            batch_time=batch_time,
        )

    def _recovery_plan(self, budget: ErrorBudget) -> RecoveryPlan:
        match self.hint:
            case Hint.CREATE:
                return StartEmpty()
            case Hint.RECOVER:
                return budget.tolerance.recovery_plan(self.chain, self.previous)
            case _:
                return self.completing or KeepResident()

    def lost(
        self,
        budget: ErrorBudget,
        home: str,
        batch_time: BatchTime | None = None,
        trace: LossEvidence | None = None,
        durable: DurableState | None = None,
    ) -> WorkerState:
        """The next incarnation, after this one was declared lost; it will live at ``home``.

        ``durable``: what a durable record names, if that is not of the last batch. ``trace``: what it found of an
        incarnation that had made part of the batch final; then that one is counted.
        """
        counted_failures = self.counted_failures
        durable = durable or DurableState(
            self.version,
            self.incarnation,
            self.chain,
            self.previous,
            self.waiting,
            self.older_theta,
            self.restart_chain,
        )
        saved = self.saved and trace is None
        held = self.completed if durable.incarnation == self.incarnation else 0
        # One that was promoted has completed nothing, and yet a gap takes what it was left.
        if counts_as_failure(completed=held, steps=trace is not None or durable.gap_batches > 0):
            trace = trace or LossEvidence(self.incarnation)
            counted_failures = (
                *counted_failures,
                budget.count_failure(counted_failures, batch_time or BatchTime(), trace, durable.older_theta),
            )
        return replace(
            self.moved(self.primary.id, home),
            version=durable.version,
            chain=durable.chain,
            previous=durable.previous,
            incarnation=Incarnation(self.incarnation + 1),
            counted_failures=counted_failures,
            completed=0,
            hint=Hint.RECOVER,
            older_theta=None,
            raised=False,
            # An incarnation that completed nothing was not told yet what the one before it had lost.
            lost_items=durable.waiting if self.completed or durable.gap_batches else self.lost_items,
            waiting=0,
            saved=saved,
            recovering=not saved,
            promoting=False,
            completing=None,
            checkpointed=durable.version,
            queued={},
            restart_chain=self.restart_chain or durable.hole,
        )

    def with_limits(self, before: Mapping[str, float], now: Mapping[str, float]) -> WorkerState:
        """The same under other thresholds: its backups were made under those that it had ``before``."""
        lowered = any(now[name] < most for name, most in before.items())
        older = {name: max(most, (self.older_theta or {}).get(name, 0.0)) for name, most in before.items()}
        return replace(
            self,
            recheck=self.recheck or lowered,
            older_theta=older if lowered else self.older_theta,
            raised=self.raised or any(now[name] > most for name, most in before.items()),
        )

    def promoted(
        self, queued: Mapping[Batch, int] | None = None, completing: CompleteState | None = None
    ) -> WorkerState:
        """This incarnation of a lost worker, given that a secondary takes its place: its state is there, but for what
        ``completing`` adds to it, and its first backup builds on none of those before.
        """
        return replace(
            self,
            hint=Hint.RESUME,
            promoting=True,
            completing=completing,
            restart_chain=True,
            checkpointed=None,
            queued=queued or {},
        )

    def following(self, batch: Batch) -> WorkerState:
        """The worker once it has applied the batches before ``batch``, as far as it can be known beforehand."""
        if self.version == batch - 1:
            return self
        return replace(
            self,
            version=batch - 1,
            completed=self.completed + batch - 1 - self.version,
            hint=Hint.RESUME,
            promoting=False,
            completing=None,
            raised=False,
        )

    def applied(
        self, report: TaskReport, budget: ErrorBudget, batch_time: BatchTime | None = None, *, replays: bool = True
    ) -> WorkerState:
        """The worker after it has applied a batch, with the backup that it wrote. ``replays``: whether it could make
        good by replay what no backup holds.
        """
        chain, previous = self.chain, self.previous
        for backup in report.backups:
            chain, previous = extend(chain, previous, backup)
        hole = self.restart_chain and not any(backup.full for backup in report.backups)
        counted_failures = budget.remembered(self.counted_failures, batch_time or BatchTime())
        theta = budget.theta(counted_failures)
        # It may have applied it for an earlier driver, whose limits were higher, or which would have replayed it.
        allowed = report.allowed_drift if report.covers or replays else dict.fromkeys(theta, math.inf)
        older = {name: most for name, most in allowed.items() if most > theta.get(name, most)}
        return replace(
            self,
            completed=self.completed + 1,
            saved=False,
            recovering=False,
            version=self.version + 1,
            hint=Hint.RESUME,
            promoting=False,
            completing=None,
            checkpointed=self.version + 1 if report.covers else self.checkpointed,
            chain=chain,
            previous=previous,
            # Only what is written tells that nothing lags behind limits that were lowered.
            recheck=bool(older) or (self.recheck and not report.covers),
            older_theta=older or (None if report.covers else self.older_theta),
            raised=False,
            restart_chain=hole,
            counted_failures=counted_failures,
            waiting=0 if report.feedback_durable else sum(report.fed_back.values()),
        )

    def record(self, budget: ErrorBudget) -> WorkerRecord:
        return WorkerRecord(
            worker=self.worker,
            incarnation=self.incarnation,
            failures=self.failures,
            completed=self.completed,
            host=self.home,
            theta=budget.theta(self.counted_failures) | dict(self.older_theta or {}),
            chain=self.chain,
            previous=self.previous,
            counted_failures=self.counted_failures,
            waiting=self.waiting,
            hole=self.restart_chain,
            untold=self.lost_items if self.recovering else None,
        )
