"""What the application's own variance hides is said, with the repetitions that would show it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from afspark.lab.observations import Outage, TargetObservations
from afspark.lab.own_variance import (
    _significance,
    hidden_effect,
    noisy_sections,
    own_variance_notes,
    pooled_deviation,
    power_of,
    repetitions_needed,
    smallest_effect,
)
from afspark.lab.study_result import StudySettings

SETTINGS = StudySettings(score="count")


def observed(*, effect: float, noise: float, sections: float = 0.0, repetitions: int = 5) -> TargetObservations:
    """Three offsets whose trials lose ``effect``, of an application whose runs differ by ``noise``."""
    random = np.random.default_rng(1)
    local = 100.0 * (1 + sections * random.standard_normal((3, 1, repetitions, 40)))
    return TargetObservations(
        "filter",
        (100, 200, 300),
        (Outage(10),),
        scores=100.0 * (1 - effect + noise * random.standard_normal((3, 1, repetitions))),
        golden_scores=100.0 * (1 + noise * random.standard_normal((3, repetitions))),
        local=local,
        golden_local=np.full((repetitions, 40), 100.0),
        begins=(10, 20, 30),
    )


def test_an_effect_that_shows_needs_no_note() -> None:
    assert own_variance_notes(observed(effect=0.5, noise=0.05), SETTINGS) == ()


def test_an_application_that_never_varies_hides_nothing() -> None:
    assert own_variance_notes(observed(effect=0.0, noise=0.0), SETTINGS) == ()


def test_the_significance_is_that_of_welch() -> None:
    random = np.random.default_rng(5)
    trials, goldens = random.normal(0.9, 0.1, 5), random.normal(1.0, 0.2, 8)
    expected = stats.ttest_ind(trials, goldens, equal_var=False).pvalue
    assert _significance(trials, goldens) == pytest.approx(expected)
    assert _significance(np.full(5, 0.9), np.ones(5)) == 0.0
    assert _significance(np.ones(5), np.full(5, 1 + 1e-16)) == 1.0


def test_no_effect_is_no_hidden_effect_where_a_large_one_would_show() -> None:
    assert hidden_effect(observed(effect=0.0, noise=0.002), SETTINGS) is None


def test_a_hidden_effect_is_told_with_the_repetitions_that_would_show_it() -> None:
    note = hidden_effect(observed(effect=0.05, noise=0.3), SETTINGS)
    assert note is not None and note.startswith("filter: the application's own variance hides")
    needed = int(note.split("about ")[1].split()[0].replace(",", ""))
    assert needed > 5
    assert "\n" not in note


def test_more_repetitions_are_asked_for_than_there_were() -> None:
    seen = observed(effect=0.0, noise=0.0, repetitions=3)
    seen.scores[:] = [0.0, 50.0, 50.0]
    seen.golden_scores[:] = [90.0, 100.0, 110.0]
    note = hidden_effect(seen, SETTINGS)
    assert note is not None
    assert int(note.split("about ")[1].split()[0]) > 3


def test_an_offset_where_nothing_changes_does_not_silence_the_others() -> None:
    seen = observed(effect=0.05, noise=0.3)
    seen.golden_scores[1] = seen.scores[1] = 0.0
    assert hidden_effect(seen, SETTINGS) is not None
    seen.golden_scores[:] = seen.scores[:] = 0.0
    assert hidden_effect(seen, SETTINGS) is None


def test_the_repetitions_that_are_named_do_show_it() -> None:
    random = np.random.default_rng(7)
    needed = repetitions_needed(effect=0.1, spread=0.1, alpha=0.05)
    draws = random.standard_normal((4_000, 2, needed)) * 0.1
    shown = stats.ttest_ind(draws[:, 0] + 0.1, draws[:, 1], axis=1).pvalue < 0.05
    assert shown.mean() == pytest.approx(0.8, abs=0.03)


def test_power_grows_with_repetitions_and_has_an_end() -> None:
    powers = [power_of(n, 0.1, 0.2, 0.05) for n in (2, 5, 20, 100, 1000)]
    assert powers == sorted(powers) and powers[-1] > 0.999
    assert repetitions_needed(effect=1e-9, spread=1.0, alpha=0.05) == 1_000_000
    assert repetitions_needed(effect=0.1, spread=0.0, alpha=0.05) == 2


def test_the_smallest_effect_is_the_one_that_these_repetitions_show() -> None:
    smallest = smallest_effect(0.1, 30, 30, 0.05)
    assert power_of(30, smallest, 0.1, 0.05) == pytest.approx(0.8, abs=0.01)


def test_the_deviation_is_that_of_both_groups() -> None:
    trials, goldens = np.array([[0.4, 0.6]]), np.array([[0.9, 1.0, 1.1]])
    # Squares of 0.02 in each group, and 2 + 3 - 2 degrees of freedom.
    assert pooled_deviation(trials, goldens) == pytest.approx((0.04 / 3) ** 0.5)


def test_sections_that_vary_by_themselves_are_told() -> None:
    note = noisy_sections(observed(effect=0.5, noise=0.0, sections=0.2), SETTINGS)
    assert note is not None and "own variance" in note and "repetitions" in note
    assert noisy_sections(observed(effect=0.5, noise=0.0, sections=0.01), SETTINGS) is None


def test_sections_without_a_golden_score_call_for_larger_ones() -> None:
    seen = observed(effect=0.5, noise=0.0)
    seen.golden_local[:, :12] = 0.0
    note = noisy_sections(seen, SETTINGS)
    assert note is not None and "larger sections, whose golden scores are not 0" in note
