"""What the controller would have chosen, given what was measured of a unit: histories run through the pure controller.

Nothing runs here: the looks of a real run, a moment and what was known then, are given to controllers with other limits
and other costs. What a scheme would have changed in the measurements themselves is left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from afspark.control import Controller, Scheme, Situation
from afspark.policies import Adaptive


@dataclass(frozen=True)
class Look:
    """What was known of a unit at a moment, in seconds since 1970."""

    at: float
    situation: Situation


@dataclass
class ReplayedDay:
    """Seconds under each protection, and what was taken beyond the primary: cost times seconds, as chosen and under
    two schemes that never change.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cost: float = 0.0
    active: float = 0.0
    passive: float = 0.0
    changes: int = 0
    #: seconds in which nothing was in time
    hopeless: float = 0.0

    def share(self) -> dict[str, float]:
        """The part of the time under each protection."""
        whole = sum(self.seconds.values())
        return {name: part / whole for name, part in self.seconds.items()}

    def to_json(self) -> dict[str, object]:
        return {
            "share": self.share(),
            "over_active": self.cost / self.active if self.active else None,
            "over_passive": self.cost / self.passive if self.passive else None,
            "changes": self.changes,
            "hopeless": self.hopeless,
        }


def replayed(looks: Sequence[Look], adaptive: Adaptive, *, schemes_only: bool = False) -> ReplayedDay:
    """The day as a controller with these limits and costs would have spent it; each look holds until the next one."""
    controller, day = Controller(adaptive=adaptive, schemes_only=schemes_only), ReplayedDay()
    for look, following in itertools.pairwise(looks):
        controller, found = controller.tick(look.at, [look.situation])
        seconds = following.at - look.at
        for decision in found:
            costs = {str(one.protection): one.cost for one in decision.candidates}
            chosen = str(decision.chosen.protection)
            day.seconds[chosen] = day.seconds.get(chosen, 0.0) + seconds
            day.cost += decision.chosen.cost * seconds
            day.active += costs[Scheme.ACTIVE_REPLICATION] * seconds
            day.passive += costs[Scheme.PASSIVE_REPLICATION] * seconds
            day.changes += decision.changes and decision.before is not None
            day.hopeless += 0.0 if decision.in_time else seconds
    return day


def all_days(
    looks: Sequence[Look], vectors: Mapping[str, Adaptive], limits: Sequence[float], *, schemes_only: bool = False
) -> dict[str, object]:
    """By costs and limit how the day was spent. ``vectors``: a controller for each of the costs; its limit is not
    heeded. ``schemes_only``: under the six schemes alone.
    """

    def day(adaptive: Adaptive, limit: float) -> dict[str, object]:
        return replayed(looks, replace(adaptive, recovery_seconds=limit), schemes_only=schemes_only).to_json()

    return {name: {f"{limit:g}": day(adaptive, limit) for limit in limits} for name, adaptive in vectors.items()}
