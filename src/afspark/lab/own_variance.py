"""Whether the application's own variance hides what a fault does, and how many repetitions would show it."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from afspark.lab.metrics import longest_outage, quality_of_trials, section_errors
from afspark.lab.observations import Scores, TargetObservations
from afspark.lab.study_result import StudySettings

POWER = 0.8
"""How likely the repetitions that are named would show the effect."""

MOST_REPETITIONS = 1_000_000

_ROUNDING = 1e-12
"""Deviations of qualities below this come from the order of additions."""

_FALSE_ALARMS = 0.05
"""Which part of the sections before a fault may be outside the threshold."""


def own_variance_notes(observations: TargetObservations, settings: StudySettings) -> tuple[str, ...]:
    """What the user has to know of the application's own variance before the metrics of a target are believed."""
    found = (hidden_effect(observations, settings), noisy_sections(observations, settings))
    return tuple(note for note in found if note is not None)


def hidden_effect(observations: TargetObservations, settings: StudySettings) -> str | None:
    """A sentence if no effect of the longest outage can be told from the variance, though it may be there."""
    there = observations.golden_scores.mean(axis=1) != 0
    golden = observations.golden_scores[there]
    trials = quality_of_trials(observations)[there, longest_outage(observations), :]
    means = golden.mean(axis=1)
    if not there.any() or trials.shape[1] < 2 or golden.shape[1] < 2:
        return None
    goldens = golden / means[:, None]
    spread = pooled_deviation(trials, goldens)
    if spread == 0:
        return None
    effects = np.abs(trials.mean(axis=1) - goldens.mean(axis=1))
    repetitions, golden_runs = trials.shape[1], goldens.shape[1]
    p_values = [_significance(one, other) for one, other in zip(trials, goldens, strict=True)]
    # Bonferroni: with many offsets one of them differs by chance.
    alpha = settings.alpha / len(p_values)
    if min(p_values) < alpha:
        return None
    smallest = smallest_effect(spread, repetitions, golden_runs, alpha)
    if smallest <= settings.threshold:
        return None
    wanted = max(settings.threshold, float(effects.max()))
    # What these repetitions had the power to show, and did not, takes more of them.
    needed = max(repetitions_needed(wanted, spread, alpha), repetitions + 1)
    return (
        f"{observations.target}: the application's own variance hides the effect of a fault: scores of equal runs"
        f" differ by {spread:.1%} (σ), so that {repetitions} repetitions show no effect below {smallest:.1%};"
        f" about {needed:,} repetitions and golden runs would show one of {wanted:.1%}."
    )


def noisy_sections(observations: TargetObservations, settings: StudySettings) -> str | None:
    """A sentence if sections from before the faults are outside the threshold as well."""
    at = longest_outage(observations)
    before = np.concatenate(
        [section_errors(observations, offset, at)[:begin] for offset, begin in enumerate(observations.begins)]
        or [np.zeros(0)]
    )
    if not len(before):
        return None
    outside = float((before > settings.threshold).mean())
    if outside <= _FALSE_ALARMS:
        return None
    # Means of n trials differ by 1 / √n of what single ones do.
    typical = (
        float(np.quantile(before[np.isfinite(before)], 1 - _FALSE_ALARMS)) if np.isfinite(before).any() else math.inf
    )
    more = (
        f" about {math.ceil(observations.scores.shape[2] * (typical / settings.threshold) ** 2):,} repetitions and"
        " golden runs would bring them inside, and so would larger sections."
        if typical > settings.threshold and math.isfinite(typical)
        else " choose larger sections, whose golden scores are not 0."
    )
    return (
        f"{observations.target}: {outside:.0%} of the sections before the fault are outside the threshold of"
        f" {settings.threshold:.0%} as well, so R and I count the application's own variance;{more}"
    )


def _significance(trials: Scores, goldens: Scores) -> float:
    """The p-value of Welch's t-test; runs that are all equal differ for certain, or not at all."""
    one, other = (float(scores.std(ddof=1)) for scores in (trials, goldens))
    means = float(trials.mean()), float(goldens.mean())
    if max(one, other) < _ROUNDING:
        return float(math.isclose(*means, abs_tol=_ROUNDING))
    found = stats.ttest_ind_from_stats(means[0], one, len(trials), means[1], other, len(goldens), equal_var=False)
    return float(found.pvalue)


def pooled_deviation(trials: Scores, goldens: Scores) -> float:
    """The standard deviation of equal runs, from trials (m x p) and golden runs (m x q) of all offsets."""
    freedom = trials.shape[1] + goldens.shape[1] - 2
    squares = trials.var(axis=1) * trials.shape[1] + goldens.var(axis=1) * goldens.shape[1]
    deviation = math.sqrt(float(squares.mean()) / freedom)
    return 0.0 if deviation < _ROUNDING else deviation


def smallest_effect(spread: float, trials: int, goldens: int, alpha: float) -> float:
    """The smallest difference of means that so many trials and golden runs show with probability `POWER`."""
    freedom = trials + goldens - 2
    error = spread * math.sqrt(1 / trials + 1 / goldens)
    return float((stats.t.ppf(1 - alpha / 2, freedom) + stats.t.ppf(POWER, freedom)) * error)


def repetitions_needed(effect: float, spread: float, alpha: float) -> int:
    """How many trials, and as many golden runs, show an effect with probability `POWER` in a t-test.

    >>> repetitions_needed(effect=0.5, spread=1.0, alpha=0.05)
    64
    """
    if spread == 0:
        return 2
    least, most = 2, 4
    while power_of(most, effect, spread, alpha) < POWER:
        least, most = most, 2 * most
        if most >= MOST_REPETITIONS:
            return MOST_REPETITIONS
    while least < most:
        middle = (least + most) // 2
        if power_of(middle, effect, spread, alpha) >= POWER:
            most = middle
        else:
            least = middle + 1
    return least


def power_of(repetitions: int, effect: float, spread: float, alpha: float) -> float:
    """How likely a two-sided t-test of two groups of ``repetitions`` shows the effect."""
    freedom = 2 * repetitions - 2
    critical = stats.t.ppf(1 - alpha / 2, freedom)
    shift = effect / (spread * math.sqrt(2 / repetitions))
    # scipy's noncentral t has no number for the tail on the other side, which matters to nobody.
    return float(stats.nct.sf(critical, freedom, shift))
