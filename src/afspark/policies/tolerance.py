"""Tolerance policies: how much of an operator's state may be lost, and what is backed up for it.

Pure decisions. A policy plans the backups and recoveries of workers (`plans`), and says what is promised to the user.
Those here plan by thresholds: state that differs from its last durable backup by more than the threshold is written
before the batch ends, and items that wait unprocessed are written when there are more than their threshold. An
infinite threshold never writes; zero writes everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from afspark.bounds.general import state_bound
from afspark.bounds.thresholds import Place, threshold
from afspark.policies import parameters
from afspark.policies.plans import BackupNeed, BackupPlan, NoBackup, RecoveryPlan, RestoreChain, ThresholdBackup
from afspark.store import ObjectRef


@dataclass(frozen=True)
class Tolerance:
    """Base of the policies. ``name`` is the word used on the command line and in reports."""

    name: ClassVar[str] = ""
    #: whether commit records are kept for the policy: without them a worker that lost its state is given nothing back
    needs_records: ClassVar[bool] = True
    #: the reason behind the thresholds, where they do not depend on the place or on failures
    reason: ClassVar[str] = ""

    #: whether state is backed up at some barriers only, so that all since the last one has to be replayed
    replays: ClassVar[bool] = False

    #: whether workers have a second copy of their state on another host
    has_secondaries: ClassVar[bool] = False

    #: whether it says how a lost worker is recovered, so that no host is waited for that may come back with its state
    recovers_elsewhere: ClassVar[bool] = False

    @property
    def waits_at_barriers(self) -> bool:
        """Whether everybody waits at a barrier until it is durable."""
        return False

    @property
    def takes_all_back(self) -> bool:
        """Whether a loss takes all workers back to the last barrier, not only the lost one."""
        return False

    @property
    def barrier_seconds(self) -> float:
        """How far apart barriers are, if that is a time."""
        return 0.0

    @property
    def rarely(self) -> Tolerance:
        """The same with barriers as far apart as they may be while a secondary has all that its primary has."""
        return self

    @property
    def longest_chain(self) -> int | None:
        """After how many backups the next one of a worker is a full image; None: as the store's own rule says."""
        return None

    @property
    def records_kept(self) -> int | None:
        """How many of the newest commit records are kept; None: as the store's own rule says."""
        return None

    def is_due(self, *, seconds: float, batches: int, items: int) -> bool:
        """Whether a batch that begins so long after the last barrier ends with one."""
        return True

    @property
    def approximates(self) -> bool:
        """Whether recovery may give back less than there was, within a promised bound."""
        return False

    @property
    def exact(self) -> bool:
        """Whether no failure changes anything, so that none has to be counted."""
        return False

    @property
    def leaves_gap(self) -> bool:
        """Whether nothing is replayed for a lost worker, which lacks for good what came since its last checkpoint."""
        return False

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        """What a worker writes before the batch ends."""
        return ThresholdBackup(
            theta=need.theta, pane_theta=need.pane_theta, items=need.items, full=need.full, recheck=need.recheck
        )

    def flush_plan(self, need: BackupNeed) -> BackupPlan:
        """What a worker writes when the query is stopped: all that no backup holds, so that nothing ends with it."""
        return ThresholdBackup(theta=dict.fromkeys(need.theta, 0.0), full=need.full, recheck=True)

    def recovery_plan(self, chain: tuple[ObjectRef, ...], preceded: tuple[ObjectRef, ...]) -> RecoveryPlan:
        """What a worker that has lost its state is given back; ``chain`` are its backups since the last full image."""
        return RestoreChain(chain=chain, preceded=preceded)

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        """θ: threshold in force for one state of one worker after ``failures`` counted recoveries; infinite if the
        policy sets none, so that no bound covers a failure, whatever the policy is afterwards.

        ``decaying``: the state forgets by itself, so failures do not halve what is allowed.
        """
        return math.inf

    def missing_with(self, missing: float, items: int, alpha: float | None) -> float:
        """What may be missing from a state that has also lost so many items; without those where nobody knows how much
        one can be.
        """
        return missing if alpha is None else state_bound(missing, items=items, alpha=alpha)

    def items_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        """l: how many items may wait at one worker unprocessed and without backup."""
        return 0.0

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        """γ: how many items a sender may have under way unacknowledged; 0: it waits for each."""
        return 0.0

    def seconds_allowance(self, *, failures: int) -> float | None:
        """l as a time: how old a waiting item without backup may grow; None: its age does not matter."""
        return None

    @property
    def keeps_upstream(self) -> bool:
        """Whether items stay with their sender until their effect is durable, instead of going to a log."""
        return False

    @property
    def logs_first(self) -> bool:
        """Whether every pushed item is in the log before a worker gets it."""
        return False

    def promise(self, alpha: float | None = None) -> float | None:
        """Largest divergence of the final state from a failure-free run; None if nothing is promised.

        ``alpha`` is the most one item can change the state, None if unknown.
        """
        return None

    def to_json(self) -> dict[str, Any]:
        """What records and reports say of it."""
        return {"name": self.name}


@dataclass(frozen=True)
class Nothing(Tolerance):
    """No backups: a worker that loses its state starts empty, and no error is promised."""

    name: ClassVar[str] = "none"
    needs_records: ClassVar[bool] = False
    reason: ClassVar[str] = "nothing is backed up"

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        return NoBackup(items=need.items, full=need.full)

    def flush_plan(self, need: BackupNeed) -> BackupPlan:
        return NoBackup()

    def missing_with(self, missing: float, items: int, alpha: float | None) -> float:
        return missing

    def items_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return math.inf

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return math.inf


@dataclass(frozen=True)
class MiniBatch(Tolerance):
    """Exact: every batch backs up what it has changed, and a pushed item is durable before it is acknowledged.

    Where input can be read again, backups reach the store behind the batches, and a lost worker replays what they lack.

    An item is durable in the item log, or in the state if a worker was faster. With ``log_items`` it always goes to the
    log, before a worker gets it: a write-ahead log, as Spark Streaming and AF-Stream's mini-batches have it.
    ``unacked`` is how many items a sender may have under way, which its own death takes; 0: it waits for each message.
    """

    unacked: float = 0.0
    log_items: bool = False

    name: ClassVar[str] = "minibatch"
    reason: ClassVar[str] = "every change and every item is backed up"

    def __post_init__(self) -> None:
        object.__setattr__(self, "unacked", parameters.limit("unacked", self.unacked, _MEANING["unacked"]))
        parameters.choice("log_items", self.log_items)

    @property
    def exact(self) -> bool:
        return True

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        return 0.0

    def items_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return 0.0

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return self.unacked / place.workers

    @property
    def logs_first(self) -> bool:
        return self.log_items

    def promise(self, alpha: float | None = None) -> float | None:
        return 0.0

    def to_json(self) -> dict[str, Any]:
        # JSON knows no infinity.
        unacked = {"unacked": self.unacked} if math.isfinite(self.unacked) else {}
        return {"name": self.name, "log_items": self.log_items, **unacked}


@dataclass(frozen=True)
class UpstreamBackup(MiniBatch):
    """Exact: whoever sends an item keeps it until its effect is durable; no item is written.

    That depends on the sender: what it has not got acknowledged ends with it. With ``log_items`` every item is in the
    log before it is acknowledged, as AF-Stream's upstream backup has it, so that the sender may go away sooner. There
    the state is backed up with every hundredth of the stream, and rebuilt from the log; here every step of a batch
    backs up what it has changed, while the next one is at work. Items of files and generators, which can be read
    again, are kept by their source anyway.
    """

    unacked: float = math.inf

    name: ClassVar[str] = "upstream"
    reason: ClassVar[str] = "every change is backed up, and the sender keeps every item until then"

    @property
    def keeps_upstream(self) -> bool:
        return not self.log_items


@dataclass(frozen=True)
class Approximate(Tolerance):
    """State is backed up when it has diverged by more than its share of ``theta`` from its last backup.

    ``theta`` (Θ) is in the unit of the state's divergence. ``items`` (L) is the number of unprocessed items that
    may be lost for want of a backup, ``unacked`` (Γ) that of items under way; 0 backs up every one. With
    ``items_seconds`` L is a time instead, or as well: what has waited for longer is backed up. Only items
    of sources that cannot be read again are ever lost. Whatever the number of failures, the final state differs
    from a failure-free one by at most Θ + L·α, where one item changes it by at most α; without failures it does
    not differ at all.

    >>> Approximate(theta=10_000).allowance(failures=0, place=Place(workers=2), divergence="max", exact=False)
    2500.0
    >>> Approximate(theta=10_000, items=100).promise(alpha=3)
    10300.0
    """

    theta: float
    items: float = 0
    unacked: float = 0
    items_seconds: float | None = None

    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        for name, meaning in _MEANING.items():
            if name != "items_seconds" or self.items_seconds is not None:
                object.__setattr__(self, name, parameters.limit(name, getattr(self, name), meaning))

    @property
    def approximates(self) -> bool:
        return bool(self.theta or self.items or self.unacked or self.items_seconds)

    @property
    def exact(self) -> bool:
        return not self.approximates

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        if exact:
            return 0.0
        return threshold(self.theta, failures=failures, place=place, divergence=divergence, decaying=decaying)

    def items_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        if self.items_seconds is not None and not self.items:
            return math.inf
        return threshold(self.items, failures=failures, place=place, decaying=decaying)

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return threshold(self.unacked, failures=failures, place=place, decaying=decaying)

    def seconds_allowance(self, *, failures: int) -> float | None:
        # Every worker loses its own last seconds, which are the same ones: nothing to divide.
        return None if self.items_seconds is None else threshold(self.items_seconds, failures=failures)

    def promise(self, alpha: float | None = None) -> float | None:
        if self.items_seconds is not None:
            return None
        if self.items and alpha is None:
            return None
        return state_bound(self.theta, items=self.items, alpha=alpha or 0.0)

    def to_json(self) -> dict[str, Any]:
        limits = {"theta": self.theta, "items": self.items, "unacked": self.unacked}
        return {"name": self.name, **limits, "items_seconds": self.items_seconds}


_MEANING = {
    "theta": "It is the largest error the state may show, in the unit of its divergence.",
    "items": "It is the number of unprocessed items that failures may lose; 0 backs up every item.",
    "items_seconds": "It is how long an item may wait without a backup.",
    "unacked": "It is the number of items that may be under way unacknowledged; 0 waits for each.",
}


def counts_as_failure(*, completed: int, steps: bool = False) -> bool:
    """Whether losing an incarnation costs a halving.

    An incarnation that completed no batch, and no step of one (``steps``), held nothing its backup did not hold, so
    its end loses nothing; counting it would let a crash loop drive the threshold to zero.
    """
    return completed > 0 or steps
