"""A unit at one moment: all that estimates, costs and decisions are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from afspark.control.history import UnitHistory
from afspark.control.quantities import FailureKind, Quantity


@dataclass(frozen=True, order=True)
class Unit:
    """A worker of an operator, with its primary and at most one secondary: what one decision is about."""

    operator: str
    worker: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.worker}]"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What is known of a unit ``now``, in seconds since 1970."""

    unit: Unit
    history: UnitHistory
    now: float
    #: whether it has state at all: without, there is nothing to read and nothing to replay
    stateful: bool = True
    #: whether what it has received can be had again from upstream
    replayable: bool = True
    #: whether a lost worker is restored on another host at once
    elsewhere: bool = False
    #: items that it has received since the last checkpoint that is safe, where they were counted
    waiting: float | None = None
    #: items that a secondary which processes everything has yet to come to; without those of the last batch, which it
    #: may be at work on
    behind: float = 0.0
    #: by kind of failure, after how many seconds the driver finds out by itself: counts until one was measured, and if
    #: nobody else tells the driver, afterwards as well
    deadlines: Mapping[FailureKind, float] = field(default_factory=dict)
    #: seconds of steps, as batches without a failure tell them: count until one was measured
    expected: Mapping[Quantity, float] = field(default_factory=dict)

    def detection(self, kind: FailureKind | None = None) -> float | None:
        """Seconds until the driver knows of a failure of that kind, the most ever recorded; None: of whatever kind
        takes longest. Unknown if one of them was never measured and has no deadline. Where the driver waits for an
        answer in vain, the deadline of that: some of those that are recorded were lucky, and machines may be busier
        now.
        """
        found = [self._detection(one) for one in ([kind] if kind is not None else FailureKind)]
        known = [one for one in found if one is not None]
        return max(known) if len(known) == len(found) else None

    def takeover(self, kind: FailureKind | None = None) -> float | None:
        """Seconds by which a batch is late if one of two active replicas fails in this way: the most ever recorded; of
        silent failures not less than is expected, because those recorded may be of other kinds.
        """
        recorded, expected = self.history.longest(Quantity.TAKEOVER), self.expected.get(Quantity.TAKEOVER)
        if recorded is None or expected is None:
            return expected if recorded is None else recorded
        return max(recorded, expected) if kind is None or kind.is_silent else recorded

    def step(self, what: Quantity) -> float | None:
        """Seconds that a step takes, the most ever recorded; else what is expected."""
        recorded = self.history.longest(what)
        return self.expected.get(what) if recorded is None else recorded

    def _detection(self, kind: FailureKind) -> float | None:
        deadline = self.deadlines.get(kind)
        if deadline is not None and kind.is_silent:
            # Recorded with another deadline, they tell by how much they were above that.
            late = [one.seconds - (one.amount or deadline) for one in self.history.of(kind)]
            return deadline + max([0.0, *late])
        recorded = self.history.longest(kind)
        return deadline if recorded is None else recorded
