"""Ripple Join under approximate fault tolerance: fewer samples, a wider interval.

Papers 000 (appendix A.2, theorem 2) and 003 (appendix A.2, theorem 3). With n sampled items an aggregate is
within z/√n of the truth, with a probability that z stands for; failures take at most Θ + L·β + Γ samples.
"""

from __future__ import annotations

from afspark.bounds.general import times


def lost_samples(*, theta: float = 0.0, items: float = 0.0, unacked: float = 0.0, fan_out: float = 1.0) -> float:
    """Most samples that failures take: Θ (in numbers of items, so α = 1) + L·β + Γ."""
    return theta + times(items, fan_out) + unacked
