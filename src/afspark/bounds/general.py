"""The general bound, for any operator that meets the precondition: what all failures together can cost.

AF-Stream, section 3.5: the final state differs by at most Θ + L·α, and at most Γ + L·β outputs are missing,
whatever the number of failures. α is the most one item changes the state, β the most outputs it leads to.
"""

from __future__ import annotations


def state_bound(theta: float, *, items: float = 0.0, alpha: float = 0.0) -> float:
    """Largest divergence of the final state from a failure-free one: Θ + L·α.

    >>> state_bound(100_000, items=1_000, alpha=1_500)
    1600000.0
    """
    return theta + times(items, alpha)


def times(count: float, each: float) -> float:
    """``count · each``, where nothing of anything is nothing, infinity included."""
    return float(count * each) if count and each else 0.0
