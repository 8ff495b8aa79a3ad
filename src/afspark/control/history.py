"""The measurements that estimates are made of, for one unit: the newest of each quantity.

Histories are values: they are kept in the store over restarts, and what two drivers know of a unit can be merged in any
order. Where nothing was measured the answer is None, which is not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from afspark.control.quantities import FailureKind, Measured, Measurement, measured

MOST_MEASUREMENTS = 32
"""How many of each quantity are remembered. So the largest time recorded is forgotten once it lies that far back."""

RECENT_SECONDS = 10.0
"""How far back rates reach: the present, without the noise of a single batch."""


@dataclass(frozen=True)
class UnitHistory:
    """What was measured of one unit, by quantity, the newest last.

    >>> from afspark.control.quantities import Quantity
    >>> history = UnitHistory().add(Quantity.DEPLOY, at=1.0, seconds=2.5).add(Quantity.DEPLOY, at=9.0, seconds=2.0)
    >>> history.longest(Quantity.DEPLOY), history.longest(FailureKind.FROZEN)
    (2.5, None)
    """

    series: Mapping[Measured, tuple[Measurement, ...]] = field(default_factory=dict)

    def add(self, what: Measured, *, at: float, seconds: float = 0.0, amount: float = 0.0) -> UnitHistory:
        """The history with one more measurement; ValueError if it is negative or not finite."""
        return UnitHistory({**self.series, what: _kept([*self.of(what), Measurement.of(at, seconds, amount)])})

    def merged(self, other: UnitHistory) -> UnitHistory:
        """What either knows of the same unit."""
        return UnitHistory({what: _kept([*self.of(what), *other.of(what)]) for what in {**self.series, **other.series}})

    def completed_by(self, other: UnitHistory) -> UnitHistory:
        """This history, and of what it knows nothing about what another unit of the cluster measured: times alone that
        do not depend on that unit's load. So a new worker need not fail before anybody can tell how long that takes.
        """
        lent = {
            what: found for what, found in other.series.items() if isinstance(what, FailureKind) or what.is_of_cluster
        }
        return UnitHistory({**lent, **self.series})

    def of(self, what: Measured) -> tuple[Measurement, ...]:
        return self.series.get(what, ())

    def newest(self, what: Measured) -> Measurement | None:
        return self.of(what)[-1] if self.of(what) else None

    def longest(self, what: Measured) -> float | None:
        """The most seconds recorded."""
        return max((one.seconds for one in self.of(what)), default=None)

    def rate(self, what: Measured, now: float) -> float | None:
        """Amount per second at present."""
        recent = self._recent(what, now)
        seconds = sum(one.seconds for one in recent)
        return sum(one.amount for one in recent) / seconds if seconds > 0 else None

    def lowest_rate(self, what: Measured, now: float) -> float | None:
        """The least amount per second of the single measurements of the present."""
        return min((one.amount / one.seconds for one in self._recent(what, now) if one.seconds > 0), default=None)

    def peak_rate(self, what: Measured, now: float) -> float | None:
        """The greatest amount per second of the single measurements of the present."""
        return max((one.amount / one.seconds for one in self._recent(what, now) if one.seconds > 0), default=None)

    def amount_since(self, what: Measured, since: float) -> float | None:
        """The amounts of all measurements after a moment. Where that lies before all that is remembered, the rest is
        taken to have come at the greatest rate remembered.
        """
        found = self.of(what)
        if not found:
            return None
        counted = sum(one.amount for one in found if one.at > since)
        forgotten = found[0].at - found[0].seconds - since if len(found) == MOST_MEASUREMENTS else 0.0
        if forgotten <= 0:
            return counted
        return counted + forgotten * max((one.amount / one.seconds for one in found if one.seconds > 0), default=0.0)

    def _recent(self, what: Measured, now: float) -> tuple[Measurement, ...]:
        """Measurements of the last seconds; the newest one if there is none that new."""
        found = self.of(what)
        return tuple(one for one in found if one.at > now - RECENT_SECONDS) or found[-1:]

    def to_json(self) -> dict[str, Any]:
        return {str(what): [[one.at, one.seconds, one.amount] for one in found] for what, found in self.series.items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> UnitHistory:
        """The history `to_json` described; KeyError, TypeError or ValueError for anything else."""
        return cls({measured(name): _kept(Measurement.of(*one) for one in series) for name, series in found.items()})


def _kept(found: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """The newest of them, in order and each once: so merging is the same whoever is merged first, and how often."""
    return tuple(sorted(set(found)))[-MOST_MEASUREMENTS:]
