"""Quality as a function of the outage, fitted where the two are highly correlated (section 5.2 of the paper).

So a user reads off what an outage of so many seconds costs, and how long one may last.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from afspark.lab.metrics import OutageImpact, outage_impact, quality
from afspark.lab.observations import Rate, Scores, TargetObservations

HIGH_CORRELATION = 0.9
"""From which amount of C^oq on a curve is fitted."""

_BETTER = 0.8
"""A curve replaces the straight line, which is the paper's, if its squared errors are below this part."""

_EXACT = 1e-12
"""A mean square from which on nothing is left to improve."""

# Items are told to the fit in parts of the longest outage, which keeps both parameters near 1.
_Form = Callable[[Scores, float, float], Scores]


def _line(x: Scores, a: float, b: float) -> Scores:
    return a + b * x


def _power(x: Scores, a: float, b: float) -> Scores:
    return 1.0 + a * np.power(x, b)


def _saturation(x: Scores, a: float, b: float) -> Scores:
    return 1.0 + a * -np.expm1(-x / b)


_FORMS: dict[str, _Form] = {"line": _line, "power": _power, "saturation": _saturation}
# Where the exponent of a power, and the scale of a saturation, may lie.
_SECOND = {"power": (0.05, 5.0), "saturation": (0.02, 20.0)}


@dataclass(frozen=True)
class QualityCurve:
    """A fitted curve of the quality score; ``longest`` is how far it was measured, in items.

    "line": a + b·x; "power": 1 + a·x^b; "saturation": 1 + a·(1 - e^(-x/b)); x in parts of the longest outage.
    """

    target: str
    form: str
    a: float
    b: float
    longest: int
    #: how far measured qualities are from the curve: the root of the mean square
    deviation: float
    #: items a second at the target
    rates: Mapping[Rate, float]

    def at(self, items: float) -> float:
        """The quality after an outage of so many items. It is never below 0 for scores that are never negative."""
        return float(self.points(np.array([items], dtype=np.float64))[0])

    def points(self, items: Scores) -> Scores:
        """The quality at each of these outages."""
        return _FORMS[self.form](items / self.longest, self.a, self.b)

    def after(self, seconds: float, rate: Rate = Rate.PEAK) -> float:
        """The quality after an outage of so many seconds, at the average or the peak rate of the target."""
        return self.at(seconds * self.rates[rate])

    def longest_within(self, loss: float) -> float:
        """The most items that an outage may take so that quality is at most ``loss`` from 1, as far as measured."""
        items = np.linspace(0.0, self.longest, 2001)[1:]
        outside = np.flatnonzero(np.abs(self.points(items) - 1.0) > loss)
        if not len(outside):
            return float(self.longest)
        return float(items[outside[0] - 1]) if outside[0] else 0.0

    def sentence(self, seconds: float, rate: Rate = Rate.PEAK) -> str:
        """What an outage of so many seconds costs."""
        change = self.after(seconds, rate) - 1.0
        direction = "too low" if change < 0 else "too high"
        beyond = " (longer than any that was tried)" if seconds * self.rates[rate] > self.longest * (1 + 1e-9) else ""
        return (
            f"an outage of {seconds:g} s of {self.target} at the {rate.value} rate"
            f" makes the score of the affected section {abs(change):.0%} {direction}{beyond}"
        )

    @property
    def formula(self) -> str:
        """The curve over x items."""
        match self.form:
            case "line":
                slope = self.b / self.longest
                return f"{self.a:.3g} {'-' if slope < 0 else '+'} {abs(slope):.3g}·x"
            case "power":
                return f"1 {'-' if self.a < 0 else '+'} {abs(self.a):.3g}·(x / {self.longest:,})^{self.b:.2g}"
        sign = "-" if self.a < 0 else "+"
        return f"1 {sign} {abs(self.a):.3g}·(1 - exp(-x / {self.b * self.longest:,.0f}))"

    def to_json(self) -> dict[str, Any]:
        costs = {
            rate.value: {f"{seconds:g}": self.after(seconds, rate) for seconds in _readings(self.longest / items)}
            for rate, items in self.rates.items()
        }
        return {
            "form": self.form,
            "formula": self.formula,
            "a": self.a,
            "b": self.b,
            "longest_items": self.longest,
            "deviation": self.deviation,
            "items_per_second": {rate.value: items for rate, items in self.rates.items()},
            "quality_after_seconds": costs,
        }


def fit_quality(observations: TargetObservations, impact: OutageImpact | None = None) -> QualityCurve | None:
    """The curve of a target; None where outage and quality are not highly correlated, or too few outages were tried."""
    impact = impact or outage_impact(observations)
    items = np.array([outage.items for outage in observations.outages], dtype=np.float64)
    if impact.value is None or abs(impact.value) < HIGH_CORRELATION or len(set(items)) < 3:
        return None
    found = quality(observations)
    x = np.broadcast_to(items / items.max(), found.shape).ravel()
    y = found.ravel()
    x, y = x[np.isfinite(y)], y[np.isfinite(y)]
    slope, begin = np.polyfit(x, y, 1)
    fits = {"line": (float(begin), float(slope))}
    for form in ("power", "saturation"):
        second = _fitted(form, x, y)
        if second is not None:
            fits[form] = second
    errors = {form: float(np.square(_FORMS[form](x, *fits[form]) - y).sum()) for form in fits}
    best = min(errors, key=lambda form: errors[form])
    if errors[best] > _BETTER * errors["line"] or errors["line"] <= _EXACT * len(y):
        best = "line"
    return QualityCurve(
        observations.target,
        best,
        *fits[best],
        longest=int(items.max()),
        deviation=math.sqrt(errors[best] / len(y)),
        rates=measured_rates(observations),
    )


def measured_rates(observations: TargetObservations) -> dict[Rate, float]:
    """Items a second at a target, as far as its outages were given in seconds."""
    longest: dict[Rate, tuple[float, float]] = {}
    for outage in observations.outages:
        if outage.seconds and outage.rate is not Rate.GIVEN:
            longest[outage.rate] = max(longest.get(outage.rate, (0.0, 0.0)), (outage.seconds, float(outage.items)))
    return {rate: items / seconds for rate, (seconds, items) in longest.items() if items}


def _fitted(form: str, x: Scores, y: Scores) -> tuple[float, float] | None:
    low, high = _SECOND[form]
    try:
        with warnings.catch_warnings():
            # Its estimate of the errors of the parameters is not used.
            warnings.simplefilter("ignore", optimize.OptimizeWarning)
            (a, b), _ = optimize.curve_fit(
                _FORMS[form], x, y, p0=(float(y[np.argmax(x)] - 1.0), 1.0), bounds=((-np.inf, low), (np.inf, high))
            )
    except (RuntimeError, ValueError):
        return None
    return float(a), float(b)


def _readings(most: float) -> list[float]:
    """Seconds of a table of costs: halves of the longest outage down to a sixty-fourth of it."""
    return [most / 2**halving for halving in range(6, -1, -1)]
