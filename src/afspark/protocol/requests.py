"""What the driver tells a worker for one batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from afspark.exchange.exchange_ticket import ExchangeTicket
from afspark.numbers import Batch, Fence, Incarnation, PaneNumber
from afspark.policies import BackupPlan, RecoveryPlan, StartEmpty
from afspark.protocol.batch_times import BatchTime
from afspark.protocol.lifecycle import Hint
from afspark.protocol.losses import CountedLoss
from afspark.protocol.punctuation_plan import PunctuationPlan
from afspark.protocol.replicas import ReplicaId, ReplicaRole
from afspark.protocol.shipments import Shipping


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """One worker's part in batch ``batch``. Small: it travels with every task."""

    worker: int
    #: which of the worker's replicas, and what that is for
    replica: int = 0
    role: ReplicaRole = ReplicaRole.PRIMARY
    #: the replica was a secondary, and is the primary from now on
    promotes: bool = False
    #: what it lacks then is not replayed: it goes on as if it had the batch before
    skips: bool = False
    batch: Batch
    incarnation: Incarnation
    hint: Hint
    #: grows with every driver, every taken-back batch and every one of pushed items that is over; tasks of an older one
    #: find the state and the lane closed to them
    fence: Fence
    home: str
    #: what is written before the batch is final, and where the state comes from
    backup: BackupPlan
    recovery: RecoveryPlan = field(default_factory=StartEmpty)
    #: what failures may have taken, by state; from panes with a history of failures separately
    missing: Mapping[str, float] = field(default_factory=dict)
    pane_missing: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    #: the first batch of a new incarnation: what the failure before it may have taken, by state; else None
    lost: Mapping[str, float] | None = None
    lost_items: int = 0
    #: whoever loses this incarnation will count that, whatever it has done in this batch, at these thresholds or more
    counts: bool = False
    #: counted losses by incarnation
    counted: Mapping[Incarnation, CountedLoss] = field(default_factory=dict)
    #: the newest batch whose commit record is durable, if that is not the one before: what came of those after it is
    #: kept
    covered: Batch | None = None
    #: backups may reach the store after the batch has ended
    spools: bool = False
    #: checkpoints are kept beside the state until a secondary has them
    shipping: Shipping | None = None
    #: the items are not applied: they are to wait beside the state
    queues: bool = False
    #: the items wait beside the state
    queued: bool = False
    #: digests of what a secondary has to be sent: what its primary was; None: whatever comes
    consumes: Mapping[str, str] | None = None
    #: what the same task has to do next, if all goes well
    following: tuple[TaskRequest, ...] = ()
    #: others have lost the batch: whoever has applied it answers what it answered then
    replay: bool = False
    #: False: only bring the state to the version before the batch
    apply: bool = True
    #: the batch is over, and none follows: back up what no backup holds, and wait for the store so long at most
    rest_seconds: float | None = None
    punctuation_plan: PunctuationPlan = ()
    batch_time: BatchTime = field(default_factory=BatchTime)
    #: where the model is that its operator trains, or has
    exchange: ExchangeTicket | None = None
    #: bytes of bad items that this worker may still keep
    quarantine_room: int = 0

    def losses_counted(self, *, exact: bool) -> bool:
        """Whether it is counted if items were confirmed that the state lacks; under an exact policy, whether another
        one that was in force before has let that happen.
        """
        return any(loss.may_lose for loss in self.counted.values()) if exact else self.counts or bool(self.counted)

    @property
    def replica_id(self) -> ReplicaId:
        """Whose request it is."""
        return ReplicaId(self.worker, self.replica)


def readers_of(shares: Iterable[int], requests: Sequence[TaskRequest]) -> dict[int, str]:
    """The host where each of the ``shares`` of an input is read, by the number of the worker that it belongs to: at
    its home, or at that of another one if a stage is for some workers only.
    """
    homes = homes_of(requests)
    others = [homes[worker] for worker in sorted(homes)]
    return {share: homes.get(share, others[share % len(others)]) for share in shares}


def homes_of(requests: Iterable[TaskRequest]) -> dict[int, str]:
    """The host that each worker's request is meant for."""
    return {request.worker: request.home for request in requests}
