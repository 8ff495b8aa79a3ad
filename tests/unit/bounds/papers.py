"""What the papers derive from the bounds, for checking their numbers: no query needs it."""

from __future__ import annotations

import math

from afspark.bounds.general import state_bound
from afspark.bounds.join_bounds import lost_samples
from afspark.bounds.sketch_bounds import HeavyKeys


def join_error(
    samples: float,
    *,
    z: float = 1.0,
    theta: float = 0.0,
    items: float = 0.0,
    unacked: float = 0.0,
    fan_out: float = 1.0,
) -> float:
    """Half width of the interval that holds the true aggregate; infinite if no sample is sure to be left.

    >>> join_error(10_000)
    0.01
    """
    left = samples - lost_samples(theta=theta, items=items, unacked=unacked, fan_out=fan_out)
    return z / math.sqrt(left) if left > 0 else math.inf


def false_report_chance(*, excess: float, total: float, rows: int, columns: int) -> float:
    """Most that Markov's inequality allows for the chance that a sketch overestimates a key by ``excess``.

    One row does so with a chance of at most U/(w·excess). That is the 1/2 that lemma 1 counts on for each row
    only with *twice* its number of columns; at just that number the inequality says nothing.

    >>> false_report_chance(excess=500, total=1e6, rows=4, columns=4000)
    0.0625
    """
    if excess <= 0:
        return 1.0
    return min(1.0, total / (columns * excess)) ** rows


def provably_light_below(
    keys: HeavyKeys, *, columns: int, theta: float = 0.0, items: float = 0.0, alpha: float = 0.0
) -> float:
    """Keys below this are reported with a chance of at most δ, for a sketch of ``keys.rows`` rows of ``columns``.

    φ - e - Θ - α·L, where e is the overestimate whose chance is δ by Markov's inequality alone.

    >>> provably_light_below(HeavyKeys(total=1e6, threshold=1000), columns=4000, theta=100)
    400.0
    """
    own = keys.total / columns / keys.delta ** (1 / keys.rows)
    return keys.threshold - own - state_bound(theta, items=items, alpha=alpha)
