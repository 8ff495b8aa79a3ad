"""The general bound, for any operator that meets the precondition: what all failures together can cost.

AF-Stream, section 3.5: the final state differs by at most Θ + L·α, and at most Γ + L·β outputs are missing,
whatever the number of failures. α is the most one item changes the state, β the most outputs it leads to.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


def state_bound(theta: float, *, items: float = 0.0, alpha: float = 0.0) -> float:
    """Largest divergence of the final state from a failure-free one: Θ + L·α.

    >>> state_bound(100_000, items=1_000, alpha=1_500)
    1600000.0
    """
    return theta + times(items, alpha)


def output_bound(unacked: float, *, items: float = 0.0, fan_out: float = 1.0) -> float:
    """Largest number of outputs that are missing at the end: Γ + L·β."""
    return unacked + times(items, fan_out)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What one counted failure of ``worker`` can have taken: θ in force, and numbers of items lost."""

    theta: float
    items: float = 0.0
    unacked: float = 0.0
    worker: int = 0


def realised_state(losses: Iterable[Loss], *, alpha: float = 0.0, adds_up: bool = True) -> float:
    """Bound of the state's divergence after these losses; 0 without any.

    The losses of one worker always add up; those of different workers do unless their keys are disjoint and
    the divergence is a maximum (``divides_among_copies``).

    >>> realised_state([Loss(theta=50, items=2), Loss(theta=25)], alpha=10)
    95.0
    """
    taken: dict[int, list[float]] = defaultdict(list)
    for loss in losses:
        taken[loss.worker].append(state_bound(loss.theta, items=loss.items, alpha=alpha))
    sums = [math.fsum(parts) for parts in taken.values()]
    return math.fsum(sums) if adds_up else max(sums, default=0.0)


def realised_outputs(losses: Iterable[Loss], *, fan_out: float = 1.0) -> float:
    """Bound of the number of missing outputs after these losses; 0 without any."""
    return math.fsum(output_bound(loss.unacked, items=loss.items, fan_out=fan_out) for loss in losses)


def times(count: float, each: float) -> float:
    """``count · each``, where nothing of anything is nothing, infinity included."""
    return float(count * each) if count and each else 0.0
