"""The four metrics of a target, as section 5.2 of the paper defines them.

C^oq and D^oq say whether what a fault does can be foretold, R^lq and I^lq how bad it is. The formulas leave cases open,
which are decided here: what cannot be computed is None with a reason, never a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import stats

from afspark.lab.observations import Outage, Scores, TargetObservations
from afspark.lab.study_result import DEFAULT_ALPHA, DEFAULT_PERCENTILE, DEFAULT_THRESHOLD, StudySettings

_ROUNDING = 1e-9
"""Differences between quality scores below this come from the order of additions."""

_TAIL = 10
"""The last sections of a stream: a tenth of those after the fault."""

_NEARLY_ALL = 0.9


class AnovaVerdict(StrEnum):
    """What the analysis of variance says of "the offset makes no difference"."""

    ACCEPTED = "A"
    REJECTED = "R"


@dataclass(frozen=True)
class OutageImpact:
    """C^oq: the mean over all offsets of the rank correlation between outage and quality.

    It is None where quality is the same under all outages, at every offset. Offsets where it is do not enter the mean.
    """

    value: float | None
    by_offset: tuple[float | None, ...]
    reason: str = ""


@dataclass(frozen=True)
class DataDependency:
    """D^oq: the standard deviation of quality between offsets, and the analysis of variance.

    σ is that of a sample (n - 1), None if there is one offset only. The verdict is None where there is no variance
    within the offsets to compare with.
    """

    sigma: float | None
    verdict: AnovaVerdict | None
    p_value: float | None = None
    reason: str = ""

    def to_json(self) -> list[Any]:
        return [self.sigma, None if self.verdict is None else self.verdict.value]


@dataclass(frozen=True)
class LocalImpact:
    """R^lq and I^lq under one outage: the worst over all offsets, and for each.

    ``recovery`` counts sections from the first one after the fault; 0: none was outside the threshold. Both are None
    if the output was not divided into sections.
    """

    recovery: int | None
    impact: float | None
    recoveries: tuple[int, ...] = ()
    impacts: tuple[float, ...] = ()
    #: sections with a score where the golden one is 0: they are erroneous, but their error is no number
    unbounded: int = 0
    #: wherever the fault strikes, the last sections of the stream are erroneous: nothing was seen of a recovery
    lasting: bool = False


@dataclass(frozen=True)
class TargetMetrics:
    """All metrics of a target. D^oq, R^lq and I^lq are those under the longest outage."""

    target: str
    outage: Outage
    coq: OutageImpact
    doq: DataDependency
    local: LocalImpact

    def to_json(self) -> dict[str, Any]:
        return {
            "coq": self.coq.value,
            "doq": self.doq.to_json(),
            "rlq": self.local.recovery,
            "ilq": self.local.impact,
            "coq_by_offset": list(self.coq.by_offset),
            "anova_p": self.doq.p_value,
            "rlq_by_offset": list(self.local.recoveries),
            "ilq_by_offset": list(self.local.impacts),
            "lasting": self.local.lasting,
            "sections_without_golden_score": self.local.unbounded,
            "outage": self.outage.to_json(),
            "undefined": [reason for reason in (self.coq.reason, self.doq.reason) if reason],
        }


def measure(observations: TargetObservations, settings: StudySettings | None = None) -> TargetMetrics:
    """The metrics of a target; the settings have threshold, P and α."""
    threshold, percentile, alpha = (
        (settings.threshold, settings.percentile, settings.alpha)
        if settings
        else (DEFAULT_THRESHOLD, DEFAULT_PERCENTILE, DEFAULT_ALPHA)
    )
    longest = longest_outage(observations)
    return TargetMetrics(
        observations.target,
        observations.outages[longest],
        outage_impact(observations),
        data_dependency(observations, longest, alpha),
        local_impact(observations, longest, threshold=threshold, percentile=percentile),
    )


def longest_outage(observations: TargetObservations) -> int:
    """Which outage took the most items."""
    return int(np.argmax([outage.items for outage in observations.outages]))


def quality_of_trials(observations: TargetObservations) -> Scores:
    """QS of every trial (m x n x p): its score by the mean score of the golden runs; NaN where that is 0.

    Where the longest outage changes nothing, the affected section is empty in all runs, and quality is 1.
    """
    golden = observations.golden_scores.mean(axis=1)
    safe = np.where(golden == 0, np.nan, golden)
    nothing = (observations.golden_scores == 0).all(axis=1)[:, None, None] & (observations.scores == 0)
    return np.where(nothing, 1.0, observations.scores / safe[:, None, None])


def quality(observations: TargetObservations) -> Scores:
    """QS of equation 2 (m x n): the mean score of the trials by the mean score of the golden runs."""
    return quality_of_trials(observations).mean(axis=2)


def outage_impact(observations: TargetObservations) -> OutageImpact:
    """C^oq of equation 3."""
    items = np.array([outage.items for outage in observations.outages], dtype=np.float64)
    found = tuple(rank_correlation(items, row) for row in quality(observations))
    defined = [value for value in found if value is not None]
    if not defined:
        return OutageImpact(None, found, "C: quality does not change with the outage, at any offset")
    without = len(found) - len(defined)
    reason = f"C: quality does not change with the outage at {without} of {len(found)} offsets" if without else ""
    return OutageImpact(float(np.mean(defined)), found, reason)


def rank_correlation(x: Scores, y: Scores) -> float | None:
    """Spearman's coefficient; None where one of the two is constant, or not a number everywhere."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or _constant(x) or _constant(y):
        return None
    # What differs by rounding alone has the same rank.
    return float(stats.spearmanr(x, np.round(y, 12)).statistic)


def data_dependency(
    observations: TargetObservations, outage: int | None = None, alpha: float = DEFAULT_ALPHA
) -> DataDependency:
    """D^oq under one outage, the longest by default."""
    at = longest_outage(observations) if outage is None else outage
    groups = quality_of_trials(observations)[:, at, :]
    if not np.isfinite(groups).all():
        return DataDependency(None, None, reason="D: the golden output scores 0 in an affected section")
    means = groups.mean(axis=1)
    if len(means) < 2:
        return DataDependency(None, None, reason="D: one offset has nothing to be compared with")
    sigma = float(means.std(ddof=1))
    if groups.shape[1] < 2:
        return DataDependency(sigma, None, reason="D: one repetition has no variance; repeat the trials")
    if all(_constant(group) for group in groups):
        return DataDependency(sigma, None, reason="D: no variance within the offsets, so there is nothing to test with")
    p_value = float(stats.f_oneway(*groups).pvalue)
    return DataDependency(sigma, AnovaVerdict.REJECTED if p_value < alpha else AnovaVerdict.ACCEPTED, p_value)


def section_errors(observations: TargetObservations, offset: int, outage: int) -> Scores:
    """EQ of equation 5 for all sections, those before the fault as well.

    It is relative to the amount of the golden score. Where that is 0, an equal score has no error, and any other an
    infinite one.
    """
    golden = observations.golden_local.mean(axis=0)
    error = np.abs(observations.local[offset, outage].mean(axis=0) - golden)
    unbounded = np.where(error > 0, np.inf, 0.0)
    return np.divide(error, np.abs(golden), out=unbounded, where=golden != 0)


def local_impact(
    observations: TargetObservations,
    outage: int | None = None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    percentile: float = DEFAULT_PERCENTILE,
) -> LocalImpact:
    """R^lq and I^lq under one outage, the longest by default."""
    at = longest_outage(observations) if outage is None else outage
    if not observations.golden_local.shape[1]:
        return LocalImpact(None, None)
    recoveries, impacts, lasting, unbounded = [], [], [], 0
    for offset, begin in enumerate(observations.begins):
        errors = section_errors(observations, offset, at)[begin:]
        recovery = recovery_index(errors, threshold=threshold, percentile=percentile)
        recoveries.append(recovery)
        impacts.append(squared_errors(errors[:recovery], threshold))
        lasting.append(lasts(errors, threshold))
        unbounded += int(np.isinf(errors).sum())
    return LocalImpact(max(recoveries), max(impacts), tuple(recoveries), tuple(impacts), unbounded, all(lasting))


def recovery_index(errors: Scores, *, threshold: float, percentile: float) -> int:
    """R_i of equation 7, counted from 1: the first section with which P % of the erroneous ones are covered.

    The equation has no answer of its own where no section is erroneous: 0, as there is nothing to recover from.
    """
    erroneous = np.cumsum(errors > threshold)
    total = int(erroneous[-1]) if len(erroneous) else 0
    if not total:
        return 0
    # In whole numbers on the left: 0.9 times a count may be a little more than what it should be.
    return int(np.argmax(100 * erroneous >= percentile * total)) + 1


def lasts(errors: Scores, threshold: float) -> bool:
    """Whether nearly all of the last sections after a fault are erroneous, so that no end of its effect was seen.

    >>> lasts(np.full(50, 0.1), 0.03), lasts(np.array([1.0] * 5 + [0.0] * 45), 0.03)
    (True, False)
    """
    last = errors[-max(1, len(errors) // _TAIL) :]
    return bool(len(last)) and float((last > threshold).mean()) >= _NEARLY_ALL


def squared_errors(errors: Scores, threshold: float) -> float:
    """I_i of equation 8, without sections whose error is no number."""
    counted = errors[(errors > threshold) & np.isfinite(errors)]
    return float(np.square(counted).sum())


def _constant(values: Scores) -> bool:
    return bool(np.ptp(values) <= _ROUNDING * max(1.0, float(np.abs(values).max())))
