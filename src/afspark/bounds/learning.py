"""What is promised for stochastic gradient descent: convergence, but no bound on the final model.

Paper 003, theorem 1 and appendix B. The steps are S - g/√t; the risk of every item is convex, its gradients
are at most H long, and any two models are at most F² apart in D(S, S') = |S - S'|²/2. Then the regret, summed
over T items with k failures, against the best fixed model is at most

    O(H · (Θ² + α·L²)) + F²·k·√T + (H² + F²)·√T

so the regret per item goes to 0 as long as k grows slower than √T. The first term stands for items that were
never learned from; it is constant in T, and the papers leave its factor open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from afspark.bounds.general import times
from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Risk:
    """A convex risk: ``gradient`` is H, ``diameter`` is F."""

    gradient: float
    diameter: float

    def __post_init__(self) -> None:
        if not (self.gradient > 0 and self.diameter > 0):
            raise UsageError(
                f"Gradient and diameter must be above 0, not {self.gradient!r} and {self.diameter!r}.",
                gradient=self.gradient,
                diameter=self.diameter,
            )


def regret_bound(
    risk: Risk,
    *,
    steps: int,
    failures: int = 0,
    theta: float = 0.0,
    items: float = 0.0,
    alpha: float = 0.0,
    constant: float = 1.0,
) -> float:
    """Most regret summed over ``steps`` items. ``constant`` is the factor that the papers' O() hides.

    >>> regret_bound(Risk(gradient=1, diameter=2), steps=100)
    50.0
    >>> regret_bound(Risk(gradient=1, diameter=2), steps=100, failures=3)
    170.0
    """
    if steps < 1 or failures < 0:
        raise ValueError(f"steps >= 1 and failures >= 0 expected, not {steps} and {failures}")
    height, breadth, root = risk.gradient, risk.diameter, math.sqrt(steps)
    skipped = constant * height * (theta**2 + times(items**2, alpha)) if failures else 0.0
    return skipped + breadth**2 * failures * root + (height**2 + breadth**2) * root


def average_regret_bound(risk: Risk, *, steps: int, **limits: Any) -> float:
    """Most regret per item; goes to 0 with the number of steps, which is the whole promise. ``limits``: as before.

    >>> average_regret_bound(Risk(gradient=1, diameter=2), steps=1_000_000, failures=3)
    0.017
    """
    return regret_bound(risk, steps=steps, **limits) / steps
