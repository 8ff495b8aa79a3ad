"""The metrics of section 5.2, each against an example computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from afspark.lab.metrics import (
    AnovaVerdict,
    data_dependency,
    local_impact,
    longest_outage,
    measure,
    outage_impact,
    quality,
    section_errors,
)
from afspark.lab.observations import Outage, Rate, TargetObservations
from afspark.lab.study_result import StudySettings

SETTINGS = StudySettings(score="sum:gain")


def example() -> TargetObservations:
    """Two offsets, three outages, two repetitions, two golden runs, eight sections."""
    local = np.full((2, 3, 2, 8), 100.0)
    # The two trials of a section lie 7 above and below: only their mean may matter.
    local[:, :, 0] += 7.0
    local[:, :, 1] -= 7.0
    local[0, 2] += np.array([0.0, 0.0, -100.0, 50.0, 2.0, 10.0, 3.0, 0.0])
    local[1, 2] += np.array([200.0, 0.0, 0.0, -20.0, 0.0, 0.0, 0.0, 0.0])
    return TargetObservations(
        target="filter",
        offsets=(2_000, 3_000),
        outages=(Outage(10, 1.0, Rate.AVERAGE), Outage(20, 1.0, Rate.PEAK), Outage(40, 2.0, Rate.PEAK)),
        scores=np.array(
            [
                [[80.0, 100.0], [70.0, 90.0], [40.0, 60.0]],
                [[200.0, 200.0], [240.0, 240.0], [210.0, 230.0]],
            ]
        ),
        golden_scores=np.array([[90.0, 110.0], [200.0, 200.0]]),
        local=local,
        golden_local=np.array([[90.0] * 8, [110.0] * 8]),
        begins=(2, 3),
    )


def test_quality_is_the_ratio_of_mean_scores() -> None:
    np.testing.assert_allclose(quality(example()), [[0.9, 0.8, 0.5], [1.0, 1.2, 1.1]])


def test_the_correlation_is_a_mean_over_offsets() -> None:
    found = outage_impact(example())
    # Offset 1: quality falls with every longer outage, -1. Offset 2: ranks 1 3 2 against 1 2 3, 1 - 6 · 2 / (3 · 8).
    assert found.by_offset == (pytest.approx(-1.0), pytest.approx(0.5))
    assert found.value == pytest.approx(-0.25)
    assert found.reason == ""


def test_the_data_dependency_is_a_deviation_and_an_analysis_of_variance() -> None:
    found = data_dependency(example())
    # Means 0.5 and 1.1: σ = 0.6 / √2.
    assert found.sigma == pytest.approx(0.6 / math.sqrt(2))
    # Between 2 · 0.3² · 2 = 0.36, 1 degree; within 2 · 0.1² + 2 · 0.05² = 0.025, 2 degrees: F = 0.36 / 0.0125 = 28.8.
    # For 2 degrees of freedom P(|t| > √F) = 1 - √(F / (F + 2)).
    assert found.p_value == pytest.approx(1 - math.sqrt(28.8 / 30.8))
    assert found.verdict is AnovaVerdict.REJECTED
    assert data_dependency(example(), alpha=0.01).verdict is AnovaVerdict.ACCEPTED


def test_recovery_and_impact_are_the_worst_over_offsets() -> None:
    found = local_impact(example())
    # Offset 1 from section 2 on: errors 1, 0.5, 0.02, 0.1, 0.03, 0; above 3 %: the first, second and fourth. 90 % of
    # three are reached by the third of them, at place 4. 1 + 0.25 + 0.01. Offset 2 from section 3 on: 0.2, then none.
    assert (found.recoveries, found.recovery) == ((4, 1), 4)
    assert found.impacts == (pytest.approx(1.26), pytest.approx(0.04))
    assert found.impact == pytest.approx(1.26)
    assert found.unbounded == 0


def test_half_of_the_erroneous_sections_are_covered_earlier() -> None:
    found = local_impact(example(), percentile=50.0)
    assert found.recoveries == (2, 1)
    assert found.impact == pytest.approx(1.25)


def test_other_outages_have_their_own_recovery() -> None:
    found = local_impact(example(), 0)
    assert (found.recovery, found.impact) == (0, 0.0)


def test_a_golden_score_of_zero_makes_an_error_that_is_no_number() -> None:
    seen = example()
    seen.golden_local[:, 4:6] = 0.0
    seen.local[0, 2, :, 4] = 0.0
    errors = section_errors(seen, 0, 2)
    assert errors[4] == 0.0 and math.isinf(errors[5])
    found = local_impact(seen)
    # Section 5 counts as erroneous for the recovery, and adds nothing to the sum; at offset 2 so do sections 4 and 5.
    assert (found.recoveries, found.unbounded) == ((4, 3), 3)
    assert found.impacts[0] == pytest.approx(1.25)


def test_errors_are_relative_to_the_amount_of_a_negative_score() -> None:
    seen = example()
    found = local_impact(replace(seen, local=-seen.local, golden_local=-seen.golden_local))
    assert found == local_impact(seen)


def test_without_sections_there_is_no_local_metric() -> None:
    seen = replace(example(), local=np.zeros((2, 3, 2, 0)), golden_local=np.zeros((2, 0)))
    assert (local_impact(seen).recovery, local_impact(seen).impact) == (None, None)


def test_a_fault_after_the_last_section_has_nothing_to_recover() -> None:
    assert local_impact(replace(example(), begins=(8, 8))).recovery == 0


def test_a_quality_that_never_changes_has_no_correlation() -> None:
    seen = replace(example(), scores=np.full((2, 3, 2), 50.0))
    found = outage_impact(seen)
    assert (found.value, found.by_offset) == (None, (None, None))
    assert "does not change" in found.reason


def test_ranks_do_not_hang_on_rounding() -> None:
    seen = example()
    # 1.0, 0.5 and a 0.5 that lost its last bit: ranks 3, 1.5, 1.5 against 1, 2, 3 make -√3 / 2.
    seen.scores[0] = np.array([[100.0, 100.0], [50.0, 50.0], [np.nextafter(50.0, 0.0)] * 2])
    assert outage_impact(seen).by_offset[0] == pytest.approx(-(3**0.5) / 2)


def test_an_offset_without_correlation_is_left_out_and_told() -> None:
    seen = example()
    seen.scores[1] = 200.0
    found = outage_impact(seen)
    assert found.value == pytest.approx(-1.0)
    assert "1 of 2 offsets" in found.reason


def test_without_variance_within_groups_there_is_no_verdict() -> None:
    seen = example()
    # Rounding in the ninth digit and beyond is no variance.
    seen.scores[:, 2] = np.array([[50.0, 50.0], [220.0, 220.0 * (1 + 1e-15)]])
    found = data_dependency(seen)
    assert found.sigma == pytest.approx(0.6 / math.sqrt(2))
    assert found.verdict is None and found.p_value is None
    assert "no variance within" in found.reason
    assert found.to_json() == [found.sigma, None]


@pytest.mark.parametrize(
    ("offsets", "repetitions", "says"),
    [(1, 2, "one offset"), (2, 1, "one repetition")],
)
def test_what_cannot_be_compared_has_no_verdict(offsets: int, repetitions: int, says: str) -> None:
    seen = example()
    found = data_dependency(
        replace(seen, scores=seen.scores[:offsets, :, :repetitions], golden_scores=seen.golden_scores[:offsets])
    )
    assert found.verdict is None and says in found.reason


def test_a_golden_output_without_a_score_leaves_nothing_to_divide_by() -> None:
    seen = example()
    seen.golden_scores[0] = 0.0
    assert data_dependency(seen).sigma is None
    assert outage_impact(seen).by_offset == (None, pytest.approx(0.5))


def test_an_outage_that_changes_nothing_has_quality_1() -> None:
    seen = example()
    seen.golden_scores[0] = seen.scores[0] = 0.0
    np.testing.assert_allclose(quality(seen), [[1.0, 1.0, 1.0], [1.0, 1.2, 1.1]])
    assert data_dependency(seen).sigma == pytest.approx(0.1 / math.sqrt(2))
    assert outage_impact(seen).by_offset == (None, pytest.approx(0.5))


def test_all_metrics_in_one() -> None:
    found = measure(example(), SETTINGS)
    assert longest_outage(example()) == 2
    assert found.to_json() == {
        "coq": pytest.approx(-0.25),
        "doq": [pytest.approx(0.6 / math.sqrt(2)), "R"],
        "rlq": 4,
        "ilq": pytest.approx(1.26),
        "coq_by_offset": [pytest.approx(-1.0), pytest.approx(0.5)],
        "anova_p": pytest.approx(1 - math.sqrt(28.8 / 30.8)),
        "rlq_by_offset": [4, 1],
        "ilq_by_offset": [pytest.approx(1.26), pytest.approx(0.04)],
        "lasting": False,
        "sections_without_golden_score": 0,
        "outage": {"items": 40, "seconds": 2.0, "rate": "peak"},
        "undefined": [],
    }
    assert measure(example()) == found
    assert measure(example(), replace(SETTINGS, threshold=0.2)).local.impacts == (pytest.approx(1.25), 0.0)


def test_an_effect_that_never_decays_is_told_from_one_that_does() -> None:
    seen = example()
    assert not local_impact(seen).lasting
    never = seen.local.copy()
    never[0, 2, :, 2:] += 10.0
    assert not local_impact(replace(seen, local=never)).lasting, "at the other offset it recovers"
    never[1, 2, :, 3:] += 10.0
    assert local_impact(replace(seen, local=never)).lasting
