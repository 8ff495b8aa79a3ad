"""Theorem 1 for workers that train one model together: which form of it is checked, with which constants.

Paper 003, appendix B, lemma 4: one sequence of T steps of ``rate``/√t, H the longest gradient of an item's convex loss
and D(S, S') = |S - S'|²/2 at most F², has a regret of at most (rate·H² + F²/rate)·√T against any fixed model.

n workers take T/n items each, every worker by its own t. In rounds of steps of equal size a merge replaces everybody's
model by the mean of all, and as D is convex, the sum of D(S*, ·) over the workers does not grow with it: the sums of
all workers telescope through merges as one worker's does. Together they have a regret of at most

    n·(rate·H² + F²/rate)·√(T/n) = (rate·H² + F²/rate)·√(n·T)

With k failures every worker's sum is begun anew at most k times, which costs F²/rate·√(n·T) each time (in the paper:
F²·k·√T), and the model comes back within Θ, for which the paper has O(H·Θ²):

    regret ≤ C·H·Θ² [if k > 0] + (rate·H² + (k + 1)·F²/rate)·√(n·T),     C = 1

T counts from the first item on, also where the regret is that of later ones alone: lemma 4 has √(a + T) for those that
begin after a. The paper leaves C open. Its term α·L² is 0: trained items can be read again. F² is 2·R², where R is the
length of the longest model that a batch has left behind so far, for models that are not longer: the paper asks for a
limited F and does not say where it comes from. For `SSP` and `ASP`, where each of k workers adds 1/k of its change to
a model that has moved meanwhile, and for rounds of `BSP` whose steps differ in size, the same form is checked, without
a proof: the paper's theorem has no regard to them. Nor is it proved of learners that make one step of a mean gradient:
`ConvexLoss` is for those that learn item by item.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TrainingRisk:
    """``gradient`` is H; steps are ``rate``/√t; so many ``workers`` train together."""

    gradient: float
    rate: float
    workers: int

    def bound(self, *, items: int, longest: float, failures: int = 0, theta: float = 0.0) -> float:
        """The most regret, summed over ``items``; ``longest`` is R.

        >>> radius = math.sqrt(2)
        >>> round(TrainingRisk(gradient=1, rate=1, workers=1).bound(items=100, longest=radius))
        50
        >>> round(TrainingRisk(gradient=1, rate=1, workers=4).bound(items=100, longest=radius, failures=1, theta=3))
        189
        """
        if items < 1:
            return 0.0
        spread = 2.0 * longest**2
        root = math.sqrt(self.workers * items)
        lost = self.gradient * theta**2 if failures else 0.0
        return lost + (self.rate * self.gradient**2 + (failures + 1) * spread / self.rate) * root


@dataclass(frozen=True, kw_only=True)
class RegretVerdict:
    """A regret beside its bound, both summed over ``items``."""

    items: int
    regret: float
    bound: float
    failures: int

    @property
    def held(self) -> bool:
        return self.regret <= self.bound

    def to_json(self) -> dict[str, Any]:
        return {
            "items": self.items,
            "regret": self.regret,
            "regret_per_item": self.regret / self.items if self.items else 0.0,
            "regret_bound": self.bound,
            "failures": self.failures,
            "held": self.held,
        }

    def __str__(self) -> str:
        return (
            f"{self.regret:.6g} over {self.items:,} items and {self.failures} failures, "
            f"where theorem 1 has at most {self.bound:.6g}"
        )
