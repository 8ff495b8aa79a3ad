"""What a Bernoulli sample of two streams tells about their join: estimates with intervals (Ripple Join).

Every item of the left stream is in the sample with chance p, every one of the right with chance q. Of a join
value k the sample holds A of the left items, the sum S of their values, the sum Q of the squares, and B of the
right items. Then Σ A·B / (p·q) and Σ S·B / (p·q) are unbiased for COUNT and SUM over all joined pairs. Items of
different join values are drawn independently, so variances add up, and with S² - (1-p)·Q unbiased for p²·s²,
and B² - (1-q)·B for q²·b², the variance of S·B is estimated without bias by

    S²·B² - (S² - (1-p)·Q) · (B² - (1-q)·B).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from afspark.model.kernels.plain_arrays import Array


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An aggregate over all joined pairs, and the interval that holds the truth with the wished confidence."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What is left of a sample: per join value that occurs on both sides, in arrays of one length.

    ``samples`` are the sampled items of the left and of the right stream, joined or not; ``lost`` is how many of
    each failures can have taken besides.
    """

    left: Array
    sums: Array
    squares: Array
    right: Array
    rates: tuple[float, float]
    samples: tuple[int, int]
    lost: tuple[float, float] = (0.0, 0.0)

    @property
    def pairs(self) -> float:
        return float(self.left @ self.right)

    @property
    def wider(self) -> float:
        """The factor by which losses widen the interval: error falls with the root of the sample (000, theorem 2)."""
        present, lost = sum(self.samples), sum(self.lost)
        return math.sqrt((present + lost) / present) if present else (math.inf if lost else 1.0)

    @property
    def lift(self) -> float:
        """The factor by which the estimate can be too low: losses that follow no pattern are a lower sampling rate."""
        factor = 1.0
        for present, lost in zip(self.samples, self.lost, strict=True):
            factor *= (present + lost) / present if present else (math.inf if lost else 1.0)
        return factor

    def covariance(self, one: Array, other: Array, products: Array) -> float:
        """The covariance of Σ one·B and Σ other·B, where ``products`` sums those of the items' contributions."""
        p, q = self.rates
        whole = one * other * self.right**2
        return float(np.sum(whole - (one * other - (1 - p) * products) * (self.right**2 - (1 - q) * self.right)))

    def count(self, confidence: float) -> Estimate:
        """COUNT of joined pairs. What the sample has seen is there for certain."""
        scale = self.rates[0] * self.rates[1]
        found = self._total(self.pairs, self.covariance(self.left, self.left, self.left), confidence)
        high = found.high
        if self.pairs == 0 and scale < 1:
            # No variance to go by: so many pairs would all be missed with the chance left to error.
            high = -math.log(1 - confidence) / scale * self.lift
        return Estimate(estimate=found.estimate, low=max(found.low, self.pairs), high=high)

    def sum(self, confidence: float) -> Estimate:
        """SUM of the left value over joined pairs."""
        variance = self.covariance(self.sums, self.sums, self.squares)
        return self._total(float(self.sums @ self.right), variance, confidence)

    def average(self, confidence: float) -> Estimate:
        """AVG of the left value over joined pairs: a quotient, so the interval holds for large samples only."""
        pairs = self.pairs
        if not pairs:
            return Estimate(estimate=math.nan, low=-math.inf, high=math.inf)
        mean = float(self.sums @ self.right) / pairs
        variance = (
            self.covariance(self.sums, self.sums, self.squares)
            - 2 * mean * self.covariance(self.sums, self.left, self.sums)
            + mean**2 * self.covariance(self.left, self.left, self.left)
        )
        half = quantile(confidence) * math.sqrt(max(variance, 0.0)) / pairs * self.wider
        return Estimate(estimate=mean, low=mean - half, high=mean + half)

    def _total(self, total: float, variance: float, confidence: float) -> Estimate:
        scale = self.rates[0] * self.rates[1]
        half = quantile(confidence) * math.sqrt(max(variance, 0.0)) * self.wider
        low, high = (total - half) / scale, (total + half) / scale
        if self.lift > 1:
            low, high = min(low, _times(low, self.lift)), max(high, _times(high, self.lift))
        return Estimate(estimate=total / scale, low=low, high=high)


def quantile(confidence: float) -> float:
    """Standard deviations either side of the mean that hold this share of a normal distribution."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _times(value: float, factor: float) -> float:
    return 0.0 if value == 0 else value * factor
