"""How a query runs, apart from what it computes."""

from __future__ import annotations

from dataclasses import dataclass, field

from afspark.coordinator.commit_pace import MOST_KEPT_BYTES
from afspark.errors import UsageError
from afspark.protocol.bad_items import QUARANTINE_BYTES
from afspark.protocol.fault_plan import FaultPlan
from afspark.store import Throttle
from afspark.store.lease import LEASE_SECONDS
from afspark.store.outage import WAIT_SECONDS

DEFAULT_BATCH_BYTES = 40_000_000
FLUSH_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a query runs, apart from what it computes."""

    checkpoint: str
    batch_bytes: int = DEFAULT_BATCH_BYTES
    #: folder for resident state on every host; None: shared memory
    segments: str | None = None
    #: how long a home without executor may stay away before its workers count as lost
    host_grace_seconds: float = 20.0
    #: how long an executor may owe an answer before its host counts as away; None: as its tolerances need
    silent_seconds: float | None = None
    faults: FaultPlan = field(default_factory=FaultPlan)
    #: makes the backup store as slow as a remote one, for experiments
    throttle: Throttle | None = None
    #: start although another driver runs the query: that one has to stop
    takeover: bool = False
    #: how long a driver on another machine may be silent before it counts as dead
    lease_seconds: float = LEASE_SECONDS
    #: how long the backup store may be away before the query gives up
    store_wait_seconds: float = WAIT_SECONDS
    #: how long a query that is stopped may take to make durable what is not
    flush_seconds: float = FLUSH_SECONDS
    #: how much processing time a lost worker may have to repeat: commit records may be behind the batches by that
    max_replay_seconds: float = 10.0
    #: how much a worker may keep for others of batches that no durable commit record covers
    max_kept_bytes: int = MOST_KEPT_BYTES
    #: how far apart commit records are at least, where lost workers could replay; never more than a tenth of the above
    record_seconds: float = 1.0
    #: of how many batches Spark remembers what belonged to them
    offsets_kept: int = 100
    #: how many bytes of bad items are kept, for each operator
    quarantine_bytes: int = QUARANTINE_BYTES
    #: operators whose state may be given up where a changed pipeline cannot keep it, by id or name
    discard_state: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        least_0 = {
            "hostGraceSeconds": self.host_grace_seconds,
            "silentSeconds": self.silent_seconds or 0.0,
            "leaseSeconds": self.lease_seconds,
            "storeWaitSeconds": self.store_wait_seconds,
            "flushSeconds": self.flush_seconds,
            "maxReplaySeconds": self.max_replay_seconds,
            "maxKeptBytes": self.max_kept_bytes,
            "quarantineBytes": self.quarantine_bytes,
        }
        for option, value in least_0.items():
            # NaN is not >= 0 either.
            if not value >= 0:
                raise UsageError(f"{option} must be a number of at least 0, not {value}.", option=option)
        if self.batch_bytes < 1:
            raise UsageError(
                f"batchBytes must be at least 1, not {self.batch_bytes}.",
                remedy="It is how much input a batch takes: 40 MB by default.",
                option="batchBytes",
            )
