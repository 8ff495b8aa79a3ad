"""The thresholds of approximate fault tolerance and what they promise. Pure mathematics.

Words: ``limit`` is the user's Θ (or L, Γ) for the whole operator; ``failures`` is k, the number of counted
recoveries of one worker; ``copies`` is n. Papers: AF-Stream, section 3.5, with the weight that keeps m
operators from spending the budget m times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


def threshold(
    limit: float,
    *,
    failures: int = 0,
    copies: int = 1,
    weight: float = 1.0,
    fan_out: float = 1.0,
    downstream: int = 0,
) -> float:
    """Share of ``limit`` one worker may lose at its next failure: w·Θ / (2 · n · β^(m-i) · 2^k).

    >>> threshold(10_000)
    5000.0
    >>> threshold(10_000, copies=2, failures=1)
    1250.0
    """
    if limit < 0 or math.isnan(limit):
        raise ValueError(f"a limit is a number >= 0, not {limit}")
    if failures < 0 or copies < 1 or fan_out < 1 or downstream < 0 or not 0 < weight <= 1:
        raise ValueError("failures >= 0, copies >= 1, fan-out >= 1, downstream >= 0 and 0 < weight <= 1 expected")
    return math.ldexp(weight * limit / (2.0 * copies * fan_out**downstream), -failures)


def divides_among_copies(*, keyed: bool, divergence: str) -> bool:
    """Whether the copies of an operator share one budget.

    Mergeable shares add up, so their errors do, and so do distances that sum over keys. Only the maximum
    difference over key-disjoint shares is the maximum of the shares' own differences.
    """
    return not (keyed and divergence == "max")


def realised(losses: Iterable[float], *, adds_up: bool = True) -> float:
    """Bound after these losses have happened: each entry is the θ in force when the failure struck."""
    values = list(losses)
    return math.fsum(values) if adds_up else max(values, default=0.0)
