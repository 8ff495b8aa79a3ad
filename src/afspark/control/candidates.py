"""What a unit could be protected by: each protection with its best interval, its estimate and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from afspark.control.costs import RARELY, Resources, resources
from afspark.control.estimates import estimate, replay_seconds, seconds_until_safe
from afspark.control.quantities import Quantity
from afspark.control.recovery_times import RecoveryTimes
from afspark.control.schemes import STEPS, Protection, RecoveryStep, Scheme, Unreplicated
from afspark.control.schemes import protection as protection_of
from afspark.control.situation import Situation
from afspark.policies import Adaptive

INTERVALS = (RARELY, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0, 0.5)
"""Seconds between checkpoints that can be chosen. Few, and far apart, so that noise does not change them."""

FIRST_INTERVAL = 1.0
"""Seconds until a first checkpoint, without which nobody can tell how long it takes to read one."""

GAP_INTERVAL = 1.0
"""Seconds between checkpoints where nothing is replayed: they limit what is lost, not how long a recovery takes."""

MARGIN = 0.2
"""The part of the limit that is left free where a protection or an interval is entered."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A protection with checkpoints every ``interval`` seconds, and what speaks for and against it."""

    protection: Protection
    interval: float | None
    estimate: RecoveryTimes
    resources: Resources
    cost: float

    @property
    def seconds(self) -> float:
        return self.estimate.seconds

    def verdict(self, limit: float) -> str:
        """In words, whether it recovers within ``limit`` seconds."""
        if self.estimate.unknown:
            return f"unknown: {', '.join(self.estimate.unknown)}"
        return "in time" if self.seconds <= limit else "too slow"

    def to_json(self) -> dict[str, Any]:
        return {
            "protection": str(self.protection),
            "interval": self.interval,
            "estimate": self.estimate.to_json(),
            "resources": self.resources.to_json(),
            "cost": self.cost,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Candidate:
        """The candidate `to_json` described; KeyError, TypeError or ValueError for anything else."""
        return cls(
            protection=protection_of(found["protection"]),
            interval=found["interval"],
            estimate=RecoveryTimes.from_json(found["estimate"]),
            resources=Resources(**found["resources"]),
            cost=found["cost"],
        )


def offered(adaptive: Adaptive, situation: Situation) -> Iterator[Protection]:
    """The six schemes, barrier snapshots where input is replayed, and approximation where an error is allowed."""
    yield from Scheme
    if situation.replayable and not adaptive.gap:
        yield Unreplicated.BARRIER_SNAPSHOT
    if adaptive.theta is not None:
        yield Unreplicated.APPROXIMATE


def candidate(
    protection: Protection,
    interval: float | None,
    adaptive: Adaptive,
    situation: Situation,
    *,
    late: bool = False,
) -> Candidate:
    """``protection`` with checkpoints so far apart, at the worst moment between two of them; see `_times`."""
    taken = resources(protection, situation.history, now=situation.now, interval=interval)
    return Candidate(
        protection=protection,
        interval=interval,
        estimate=_times(protection, interval, adaptive, situation, late=late),
        resources=taken,
        cost=taken.weighted(adaptive.costs),
    )


def planned(protection: Protection, adaptive: Adaptive, situation: Situation, *, late: bool = False) -> Candidate:
    """``protection`` with the longest interval that leaves a margin to the limit; the shortest if none does."""
    apart, limit = intervals(protection, adaptive, situation), (1 - MARGIN) * adaptive.recovery_seconds
    in_time = (one for one in apart if _times(protection, one, adaptive, situation, late=late).seconds <= limit)
    shortest = candidate(protection, apart[-1], adaptive, situation, late=late)
    if len(apart) == 1 or shortest.seconds > limit:
        return shortest
    return candidate(protection, next(in_time), adaptive, situation, late=late)


def _times(
    protection: Protection, interval: float | None, adaptive: Adaptive, situation: Situation, *, late: bool
) -> RecoveryTimes:
    """How long a recovery takes at the worst moment. ``late``: it would begin with the last checkpoint that there is,
    which may be older than checkpoints should be, so that there is more to replay already.
    """
    found = estimate(protection, situation, gap=adaptive.gap, interval=interval)
    if not late or found.replay is None or RecoveryStep.REPLAY not in STEPS[protection]:
        return found
    present = replay_seconds(protection, situation, gap=adaptive.gap)
    return replace(found, replay=None if present is None else max(found.replay, present))


def intervals(protection: Protection, adaptive: Adaptive, situation: Situation) -> tuple[float | None, ...]:
    """The intervals that make sense, the longest first: checkpoints that take longer to write would never keep up."""
    if protection is Unreplicated.APPROXIMATE:
        return (None,)
    if RecoveryStep.REPLAY not in STEPS[protection]:
        return (RARELY,) if situation.history.of(Quantity.CHECKPOINT_SIZE) else (FIRST_INTERVAL,)
    if adaptive.gap and isinstance(protection, Scheme):
        return (GAP_INTERVAL,)
    writing = seconds_until_safe(situation.history) or 0.0
    return tuple(one for one in INTERVALS if one >= writing) or INTERVALS[:1]
