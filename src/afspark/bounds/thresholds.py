"""The thresholds of approximate fault tolerance: how much one worker may lose at its next failure.

Words: ``limit`` is the user's Θ (or L, Γ); ``failures`` is k, the number of counted recoveries of one worker.
AF-Stream, section 3.5, with the weight that keeps m operators from spending the budget m times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from afspark.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an operator stands: all that divides its budget, apart from failures.

    ``workers`` (n) is the number of copies, ``keyed`` whether their keys are disjoint, ``weight`` (w) the
    operator's part of the pipeline's budget, ``fan_out`` (β) the most outputs of one item, and ``downstream``
    (m-i) the number of operators after it, each of which may multiply a loss by β. ``panes`` is the number of
    panes in a sliding window, whose states share the window's budget.
    """

    workers: int = 1
    keyed: bool = False
    weight: float = 1.0
    fan_out: float = 1.0
    downstream: int = 0
    panes: int = 1

    def __post_init__(self) -> None:
        ranges = {
            "workers": (self.workers, self.workers >= 1, "at least 1"),
            "weight": (self.weight, 0 < self.weight <= 1, "above 0 and at most 1"),
            "fan_out": (self.fan_out, 1 <= self.fan_out < math.inf, "at least 1 and finite"),
            "downstream": (self.downstream, self.downstream >= 0, "at least 0"),
            "panes": (self.panes, self.panes >= 1, "at least 1"),
        }
        for name, (value, fits, expected) in ranges.items():
            if not fits:
                raise UsageError(f"{name} must be {expected}, not {value!r}.", name=name, got=value)

    def copies(self, divergence: str | None = None) -> int:
        """Number of workers that share one budget for a state of that divergence; None: for items."""
        apart = divergence is not None and not divides_among_copies(keyed=self.keyed, divergence=divergence)
        return 1 if apart else self.workers

    @property
    def amplification(self) -> float:
        """β^(m-i): what one lost item can amount to at the end of the pipeline."""
        return self.fan_out**self.downstream


ALONE = Place()


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """θ per state, l and γ of one worker at this moment, and ``why`` they are what they are."""

    theta: Mapping[str, float]
    items: float
    unacked: float
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"theta": dict(self.theta), "items": self.items, "unacked": self.unacked, "why": self.why}


def threshold(
    limit: float,
    *,
    failures: int = 0,
    place: Place = ALONE,
    divergence: str | None = None,
    decaying: bool = False,
) -> float:
    """Share of ``limit`` one worker may lose at its next failure: w·Θ / (2 · n · P · β^(m-i) · 2^k).

    ``divergence`` is that of the state in question, None for numbers of items, which are not divided among the P
    panes of a sliding window. ``decaying``: errors fade by themselves, so nothing is held back for later failures:
    w·Θ / (n · β^(m-i)).

    >>> threshold(10_000)
    5000.0
    >>> threshold(10_000, place=Place(workers=2), failures=1)
    1250.0
    >>> threshold(10_000, place=Place(workers=2), failures=1, decaying=True)
    5000.0
    """
    if limit < 0 or math.isnan(limit):
        raise ValueError(f"a limit is a number >= 0, not {limit}")
    if failures < 0:
        raise ValueError(f"a number of failures is >= 0, not {failures}")
    panes = 1 if divergence is None else place.panes
    share = place.weight * limit / (place.copies(divergence) * panes * place.amplification)
    # Halved once before any failure, so that all of them together cannot take more than the whole.
    return share if decaying else halved(share, failures + 1)


def halved(amount: float, times: int) -> float:
    """``amount``, halved so many times.

    >>> halved(10_000.0, 2)
    2500.0
    """
    return math.ldexp(amount, -times)


def divides_among_copies(*, keyed: bool, divergence: str) -> bool:
    """Whether the copies of an operator share one budget.

    Mergeable shares add up, so their errors do, and so do distances that sum over keys, and numbers of keys
    ("keys"). Only the maximum difference over key-disjoint shares is the maximum of the shares' own
    differences. ``keyed``: no key is in two shares; that the operator's items are partitioned by key is not enough.
    """
    return not (keyed and divergence == "max")


def realised(losses: Iterable[float], *, adds_up: bool = True) -> float:
    """Bound after these losses have happened: each entry is the θ in force when the failure happened."""
    values = list(losses)
    return math.fsum(values) if adds_up else max(values, default=0.0)
