"""Heavy hitters by Count-Min Sketch under approximate fault tolerance: what is reported by mistake.

Papers 000 (appendix A.1, theorem 1) and 003 (appendix A.1, theorem 2). With compensation no key of at least φ
is ever missed; a key is overestimated by at most Θ + α·L on top of the sketch's own error. Written for one
failure there; with thresholds that halve it holds for any number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from afspark.bounds.general import state_bound
from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class HeavyKeys:
    """The task: ``total`` (U) is the weight of all keys, ``threshold`` (φ) that of a heavy one; ``epsilon`` is
    the part of the threshold that a light key may be overestimated by, ``delta`` the chance that it is by more.
    """

    total: float
    threshold: float
    epsilon: float = 0.5
    delta: float = 1 / 16

    def __post_init__(self) -> None:
        if not (self.total > 0 and self.threshold > 0 and 0 < self.epsilon <= 1 and 0 < self.delta < 1):
            raise UsageError(
                "A sketch needs total > 0, threshold > 0, 0 < epsilon <= 1 and 0 < delta < 1.",
                total=self.total,
                threshold=self.threshold,
                epsilon=self.epsilon,
                delta=self.delta,
            )

    @property
    def rows(self) -> int:
        """Rows of the sketch (lemma 1): log2(1/δ), rounded up."""
        return math.ceil(-math.log2(self.delta))

    @property
    def columns(self) -> int:
        """Counters per row as lemma 1 has them: U/(ε·φ), rounded up.

        Markov's inequality alone, by which the lemma is proved, needs twice as many.
        """
        return math.ceil(self.total / (self.epsilon * self.threshold))

    def light_below(self, *, theta: float = 0.0, items: float = 0.0, alpha: float = 0.0) -> float:
        """Keys below this are reported with a chance of at most δ: (1-ε)·φ - Θ - α·L. Not above 0: no key is.

        >>> HeavyKeys(total=1e6, threshold=1000).light_below(theta=100, items=2, alpha=50)
        300.0
        """
        return (1 - self.epsilon) * self.threshold - state_bound(theta, items=items, alpha=alpha)
