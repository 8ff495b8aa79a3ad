"""Tolerance policies: how much of an operator's state may be lost, and what is backed up for it.

Pure decisions. A policy says which threshold is in force for a worker and what is promised to the user; the
runtime does the rest with one mechanism: state that differs from its last durable backup by more than the
threshold is written before the batch ends. An infinite threshold never writes; zero writes every change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from afspark.bounds.thresholds import divides_among_copies, threshold
from afspark.errors import UsageError


@dataclass(frozen=True)
class Tolerance:
    """Base of the policies. ``name`` is the word used on the command line and in reports."""

    name: ClassVar[str] = ""
    #: whether a worker that lost its state can be given anything back
    recovers: ClassVar[bool] = True

    def allowance(self, *, failures: int, workers: int, keyed: bool, divergence: str, exact: bool) -> float:
        """Threshold in force for one state of one worker after ``failures`` counted recoveries."""
        raise NotImplementedError

    def promise(self) -> float | None:
        """Largest divergence of the final state from a failure-free run; None if nothing is promised."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class Nothing(Tolerance):
    """No backups: a worker that loses its state starts empty, and no error is promised."""

    name: ClassVar[str] = "none"
    recovers: ClassVar[bool] = False

    def allowance(self, *, failures: int, workers: int, keyed: bool, divergence: str, exact: bool) -> float:
        return math.inf

    def promise(self) -> float | None:
        return None


@dataclass(frozen=True)
class MiniBatch(Tolerance):
    """Exact: every change of a batch is durable before the batch ends."""

    name: ClassVar[str] = "minibatch"

    def allowance(self, *, failures: int, workers: int, keyed: bool, divergence: str, exact: bool) -> float:
        return 0.0

    def promise(self) -> float | None:
        return 0.0


@dataclass(frozen=True)
class Approximate(Tolerance):
    """State is backed up when it has diverged by more than its share of ``theta`` from its last backup.

    ``theta`` (Θ) is in the unit of the state's divergence. Whatever the number of failures, the final state
    differs from a failure-free one by at most Θ; without failures it does not differ at all.

    >>> Approximate(theta=10_000).allowance(failures=0, workers=2, keyed=False, divergence="max", exact=False)
    2500.0
    """

    theta: float

    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        if not self.theta >= 0:  # refuses NaN too
            raise UsageError(f"theta must be a number >= 0, not {self.theta!r}.", theta=self.theta)

    def allowance(self, *, failures: int, workers: int, keyed: bool, divergence: str, exact: bool) -> float:
        if exact:
            return 0.0
        copies = workers if divides_among_copies(keyed=keyed, divergence=divergence) else 1
        return threshold(self.theta, failures=failures, copies=copies)

    def promise(self) -> float | None:
        return self.theta

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "theta": self.theta}


def counts_as_failure(*, completed: int) -> bool:
    """Whether losing an incarnation costs a halving.

    An incarnation that completed no batch held nothing its backup did not hold, so its end loses nothing;
    counting it would let a crash loop drive the threshold to zero.
    """
    return completed > 0
