"""A limit for recovery instead of a scheme: the controller picks the cheapest one that keeps it, and moves on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from afspark.bounds.thresholds import Place
from afspark.errors import UsageError
from afspark.policies import parameters
from afspark.policies.cost_weights import Costs
from afspark.policies.plans import BackupNeed, BackupPlan
from afspark.policies.replication import ActiveReplication, scheme_of
from afspark.policies.snapshot import BarrierSnapshot
from afspark.policies.tolerance import Approximate, Tolerance

_RECOVERY = "It is how long a failed worker may take until it has applied its next batch."
_PLAIN = {
    "recovery_seconds": (parameters.seconds, _RECOVERY),
    "every": (parameters.seconds, "It is how often the choice is looked at again."),
    "cooldown": (parameters.finite, "It is how long a scheme stays at least, as long as it recovers in time."),
}


@dataclass(frozen=True)
class ChosenApproximation(Approximate):
    """`Approximate` for some workers of an operator, for as long as the controller says: every batch is a barrier."""

    replays: ClassVar[bool] = True


@dataclass(frozen=True)
class Adaptive(Tolerance):
    """Every worker recovers within ``recovery_seconds``, by the scheme that costs least of those that can.

    Workers start with active replication. ``every`` so many seconds the controller estimates for each of them how long
    every scheme would take to recover, and ranks those within the limit by ``costs``. A scheme stays for at least
    ``cooldown`` seconds, unless it has become too slow.

    Recovery is exact, unless ``gap=True`` (what came since the last checkpoint is lost, see `Replicated`), or
    ``theta`` is given: then `Approximate` with this limit is a choice too.

    >>> Adaptive(recovery_seconds=2).chosen("hot-standby", interval=4.0).to_json()
    {'name': 'hot-standby', 'interval': 4.0, 'gap': False}
    """

    recovery_seconds: float = 5
    costs: Costs = field(default_factory=Costs)
    every: float = 0.5
    cooldown: float = 10
    gap: bool = False
    theta: float | None = None

    name: ClassVar[str] = "adaptive"
    replays: ClassVar[bool] = True
    has_secondaries: ClassVar[bool] = True
    recovers_elsewhere: ClassVar[bool] = True
    reason: ClassVar[str] = "the cheapest scheme that recovers in time"

    def __post_init__(self) -> None:
        for name, (checked, meaning) in _PLAIN.items():
            object.__setattr__(self, name, checked(name, getattr(self, name), meaning))
        if not isinstance(self.costs, Costs):
            raise UsageError(
                f"costs must be Costs, not {parameters.shown(self.costs)}.",
                remedy="Give what resources cost, such as costs=Costs(cpu=1, memory=0, network=1, hosts=10).",
                costs=self.costs,
            )
        parameters.choice("gap", self.gap)
        if self.theta is not None:
            object.__setattr__(self, "theta", Approximate(self.theta).theta)

    def chosen(self, name: str, interval: float | None = None) -> Tolerance:
        """The tolerance of that name as the controller sets it, with a checkpoint every ``interval`` seconds."""
        if name == Approximate.name and self.approximation is not None:
            return self.approximation
        if name == BarrierSnapshot.name:
            return BarrierSnapshot(interval=interval)
        return scheme_of(name, interval, gap=self.gap)

    @property
    def first(self) -> Tolerance:
        """What a worker starts with, before anything is measured."""
        return ActiveReplication(gap=self.gap, store_every=1)

    @property
    def approximation(self) -> ChosenApproximation | None:
        """The approximate tolerance that may be chosen."""
        return None if self.theta is None else ChosenApproximation(self.theta)

    @property
    def approximates(self) -> bool:
        return self.approximation is not None and self.approximation.approximates

    @property
    def exact(self) -> bool:
        return not self.approximates and not self.gap

    @property
    def leaves_gap(self) -> bool:
        return self.gap

    def is_due(self, *, seconds: float, batches: int, items: int) -> bool:
        return self.first.is_due(seconds=seconds, batches=batches, items=items)

    def backup_plan(self, need: BackupNeed) -> BackupPlan:
        return self.first.backup_plan(need)

    def allowance(self, *, failures: int, place: Place, divergence: str, exact: bool, decaying: bool = False) -> float:
        return self.first.allowance(
            failures=failures, place=place, divergence=divergence, exact=exact, decaying=decaying
        )

    def unacked_allowance(self, *, failures: int, place: Place, decaying: bool = False) -> float:
        return self.first.unacked_allowance(failures=failures, place=place, decaying=decaying)

    @property
    def keeps_upstream(self) -> bool:
        return self.first.keeps_upstream

    def promise(self, alpha: float | None = None) -> float | None:
        """Whatever is chosen in between: only failures under `Approximate` change anything, and they share one Θ."""
        if self.gap:
            return None
        return 0.0 if self.approximation is None else self.approximation.promise(alpha)

    def to_json(self) -> dict[str, Any]:
        limits = {"recovery_seconds": self.recovery_seconds, "every": self.every, "gap": self.gap}
        theta = {} if self.theta is None else {"theta": self.theta}
        return {"name": self.name, **limits, "cooldown": self.cooldown, **theta, "costs": self.costs.to_json()}
