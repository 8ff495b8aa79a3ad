"""What a policy decides for one worker and one batch: values that travel with a request, and that a task carries out.

A `BackupPlan` says what is written before the batch is final, a `RecoveryPlan` where a state comes from. The task
finds what to do by the kind of the plan (`task/backup.py`, `task/restore.py`); a new kind is registered there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from afspark.numbers import Batch, PaneNumber
from afspark.store import ObjectRef


@dataclass(frozen=True, kw_only=True)
class BackupNeed:
    """What is known of a worker before a batch; a policy makes its plan of it."""

    batch: Batch
    #: what the tolerance allows by state; for panes with a history of failures separately
    theta: Mapping[str, float] = field(default_factory=dict)
    pane_theta: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    #: how many feedback items may wait without a backup
    items: float = 0.0
    #: the chain of backups has to start anew, because it has a hole or has grown too long
    full: bool = False
    #: what the tolerance allows was lowered since the last batch
    recheck: bool = False
    #: the end of the batch is a state of the whole query that can be recovered
    barrier: bool = True


@dataclass(frozen=True, kw_only=True)
class BackupPlan:
    """What a worker writes before a batch, or a step of one, is final. Base of all kinds."""

    kind: ClassVar[str] = ""
    #: whether a lost worker can be restored at the end of the batch, as far as its tolerance promises
    covers: ClassVar[bool] = True
    #: how many feedback items may wait without a backup
    items: float = 0.0

    def allows(self, states: Iterable[str]) -> dict[str, float]:
        """How far each of the states may be from its backup: infinitely far, if the plan sets no limit."""
        return dict.fromkeys(states, math.inf)

    def after_step(self) -> BackupPlan:
        """The plan for the next step of the same batch."""
        return self

    def described(self, states: Iterable[str]) -> dict[str, Any]:
        """What reports say of the plan that a batch was applied under."""
        return {"kind": self.kind, "covers": self.covers, "allows": self.allows(states)}


@dataclass(frozen=True, kw_only=True)
class NoBackup(BackupPlan):
    """The worker writes nothing new of any state."""

    kind: ClassVar[str] = "none"
    items: float = math.inf
    #: write what is durable already once more, as a full image, so that the chain of backups starts anew
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class AwaitBarrier(NoBackup):
    """Nothing is written before the next barrier: a state that is lost until then is made again by replay."""

    kind: ClassVar[str] = "barrier"
    covers: ClassVar[bool] = False

    def allows(self, states: Iterable[str]) -> dict[str, float]:
        return dict.fromkeys(states, 0.0)


@dataclass(frozen=True, kw_only=True)
class ThresholdBackup(BackupPlan):
    """Of a state that has drifted from its backup by more than θ the worker writes the cells that bring it under θ."""

    kind: ClassVar[str] = "threshold"
    #: θ by state
    theta: Mapping[str, float]
    #: θ by state of panes with a history of failures
    pane_theta: Mapping[PaneNumber, Mapping[str, float]] = field(default_factory=dict)
    #: write a full image instead, so that the chain of backups starts anew
    full: bool = False
    #: examine all cells, not only touched ones, because θ was lowered since the last batch
    recheck: bool = False

    def limit(self, state: str, pane: PaneNumber | None) -> float:
        """θ of one state; of the pane that it belongs to, if it belongs to one."""
        return (self.theta if pane is None else self.pane_theta.get(pane, self.theta))[state]

    @property
    def writes(self) -> bool:
        """Whether any state is ever written."""
        return min(self.theta.values(), default=math.inf) < math.inf

    def allows(self, states: Iterable[str]) -> dict[str, float]:
        return dict(self.theta)

    def after_step(self) -> ThresholdBackup:
        return replace(self, recheck=False)


@dataclass(frozen=True)
class RecoveryPlan:
    """Where the state of a worker comes from before a batch. Base of all kinds."""


@dataclass(frozen=True)
class KeepResident(RecoveryPlan):
    """The state is where the worker lives; a worker that does not find it there reports that."""


@dataclass(frozen=True, kw_only=True)
class CompleteState(RecoveryPlan):
    """The state is where the worker lives, as it was after batch ``since`` or a later one; where it is older than that
    of batch ``until``, the backups of a chain bring it there.
    """

    since: int
    until: int
    chain: tuple[ObjectRef, ...]

    def fits(self, version: int) -> bool:
        """Whether a state of that version needs the backups, and lacks nothing else.

        >>> plan = CompleteState(since=3, until=6, chain=())
        >>> [plan.fits(version) for version in (2, 3, 5, 6)]
        [False, True, True, False]
        """
        return self.since <= version < self.until


@dataclass(frozen=True)
class StartEmpty(RecoveryPlan):
    """The worker begins with empty state."""


@dataclass(frozen=True, kw_only=True)
class RestoreChain(RecoveryPlan):
    """The worker loads a chain of backups; the one that ``preceded`` it if the chain is damaged."""

    chain: tuple[ObjectRef, ...]
    preceded: tuple[ObjectRef, ...] = ()
