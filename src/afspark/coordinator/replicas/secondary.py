"""What the driver knows of a worker's secondary, and what it is asked to do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from afspark.coordinator.worker_state import DurableState, WorkerState
from afspark.numbers import Batch, Incarnation
from afspark.policies import CompleteState, KeepResident, RecoveryPlan, RestoreChain, StartEmpty
from afspark.policies.plans import AwaitBarrier
from afspark.protocol.lifecycle import RESTORING, Hint
from afspark.protocol.replicas import ReplicaId, ReplicaRole
from afspark.protocol.requests import TaskRequest
from afspark.resident import Survivor

#: The index of a worker's secondary among its replicas.
SECONDARY = 1


@dataclass(frozen=True, kw_only=True)
class Secondary:
    """A place for a worker on another host, prepared as far as its scheme says; with state, it is a copy that follows
    the primary of an ``incarnation``.

    ``version`` is the last batch that its state has. A state that is new is built from what a durable record names.
    """

    worker: int
    home: str
    incarnation: Incarnation
    version: int = RESTORING
    #: whether it is to have a state, and how that comes about
    holds_state: bool = False
    hint: Hint = Hint.CREATE
    recovery: RecoveryPlan = field(default_factory=StartEmpty)
    #: the batch whose record it was built from
    built_from: int = -1
    #: a backup that it was built from could not be read
    damaged: bool = False
    #: its code is loaded there
    deployed: bool = False
    #: how many checkpoints have come into its memory
    checkpoints: int = 0
    #: the batches whose items wait there, and how often operators upstream had made something else when they came
    queued: Mapping[Batch, int] = field(default_factory=dict)
    #: there is no room for more items
    full: bool = False
    #: when its code was last used there, by the driver's clock
    loaded: float = 0.0

    @classmethod
    def placed(cls, member: WorkerState, home: str) -> Secondary:
        """One without state, at ``home``."""
        return cls(worker=member.worker, home=home, incarnation=member.incarnation)

    def to_build(self, member: WorkerState, durable: DurableState) -> Secondary:
        """The same with a state that has yet to be built, from what ``member`` would be given back."""
        empty = durable.version < 0
        return Secondary(
            worker=self.worker,
            home=self.home,
            incarnation=member.incarnation,
            deployed=self.deployed,
            loaded=self.loaded,
            holds_state=True,
            version=durable.version,
            hint=Hint.CREATE if empty else Hint.RECOVER,
            recovery=StartEmpty() if empty else RestoreChain(chain=durable.chain, preceded=durable.previous),
            built_from=durable.version,
        )

    def without_state(self, member: WorkerState) -> Secondary:
        """The same place, whose state goes."""
        return replace(Secondary.placed(member, self.home), deployed=self.deployed, loaded=self.loaded)

    @classmethod
    def found(cls, survivor: Survivor) -> Secondary:
        """One that a starting driver has found."""
        return cls(
            worker=survivor.worker,
            home=survivor.host,
            incarnation=survivor.incarnation,
            version=survivor.version,
            holds_state=True,
            hint=Hint.RESUME,
            recovery=KeepResident(),
        )

    @property
    def id(self) -> ReplicaId:
        return ReplicaId(self.worker, SECONDARY)

    @property
    def is_built(self) -> bool:
        """Whether its state is there, so that it can be promoted."""
        return self.holds_state and self.hint is Hint.RESUME

    def request(self, primary: TaskRequest) -> TaskRequest:
        """What it is asked to do in a batch, given what the ``primary`` was asked: the same, but to write nothing."""
        return replace(
            primary,
            replica=SECONDARY,
            role=ReplicaRole.SECONDARY,
            home=self.home,
            incarnation=self.incarnation,
            hint=self.hint,
            recovery=self.recovery,
            backup=AwaitBarrier(),
            promotes=False,
            spools=False,
            shipping=None,
            replay=True,
        )

    def applied(self, batch: Batch, *, damaged: bool = False) -> Secondary:
        """The same with the state after ``batch``. ``damaged``: it lacks what could not be read when it was built."""
        version = max(batch, self.version)
        return replace(
            self,
            version=version,
            hint=Hint.RESUME,
            recovery=KeepResident(),
            damaged=self.damaged or damaged,
            queued={one: changes for one, changes in self.queued.items() if one > version},
            full=self.full and version == self.version,
        )

    def given_checkpoint(self, version: int) -> Secondary:
        """The same after checkpoints have brought its state to that version."""
        return replace(self.applied(Batch(version)), checkpoints=self.checkpoints + 1)

    def was_deployed(self, now: float) -> Secondary:
        """The same with its code loaded."""
        return replace(self, deployed=True, loaded=now)

    def was_queued(self, batch: Batch, changes: int) -> Secondary:
        """The same with the items of ``batch`` waiting, after so many changes of what others have sent."""
        return self if batch <= self.version else replace(self, queued={**self.queued, batch: changes})

    def to_complete(self, plan: CompleteState) -> Secondary:
        """The same as it will be when backups have brought its state on; whoever works on it next does that."""
        return replace(self, version=plan.until, recovery=plan)

    @property
    def completing(self) -> CompleteState | None:
        """What its state lacks, and the store has."""
        return self.recovery if isinstance(self.recovery, CompleteState) else None

    def can_follow(self, member: WorkerState, covered: Batch) -> bool:
        """Whether it is of use to ``member``, or will be: what it lacks can be replayed, because no record covers it.

        One that met damage is built anew as soon as there is another record to build it from.
        """
        if self.incarnation != member.incarnation or self.home == member.home:
            return False
        return self.version >= covered and not (self.damaged and covered > self.built_from)

    def can_replace(self, member: WorkerState, covered: Batch) -> bool:
        """Whether it can take the place of ``member``."""
        return self.is_built and not self.damaged and self.can_follow(member, covered)

    def state(self) -> DurableState:
        """What a lost primary leaves to it: the end of that one takes nothing."""
        return DurableState(self.version)
