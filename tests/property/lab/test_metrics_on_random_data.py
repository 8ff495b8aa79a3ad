"""The metrics against scipy and against the formulas of the paper, written out naively, on random data."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from afspark.lab.metrics import (
    data_dependency,
    local_impact,
    measure,
    outage_impact,
    quality,
    recovery_index,
    squared_errors,
)
from afspark.lab.observations import Outage, TargetObservations

Values = npt.NDArray[Any]
# Hundredths: far enough apart that ranks do not hang on rounding.
SCORES = st.integers(1, 40_000).map(lambda hundredths: hundredths / 100)


@st.composite
def observations(draw: st.DrawFn) -> TargetObservations:
    m, n, p, q, s = (draw(st.integers(least, most)) for least, most in ((1, 4), (1, 6), (1, 4), (1, 4), (1, 9)))
    items = draw(st.lists(st.integers(1, 10_000), min_size=n, max_size=n, unique=True))
    scores = [
        draw(hnp.arrays(np.float64, shape, elements=SCORES)) for shape in ((m, n, p), (m, q), (m, n, p, s), (q, s))
    ]
    begins = tuple(draw(st.lists(st.integers(0, s), min_size=m, max_size=m)))
    return TargetObservations(
        "x", tuple(range(m)), tuple(map(Outage, items)), scores[0], scores[1], scores[2], scores[3], begins
    )


@given(observations())
def test_quality_is_equation_2(seen: TargetObservations) -> None:
    found = quality(seen)
    for i in range(len(seen.offsets)):
        golden = sum(seen.golden_scores[i]) / len(seen.golden_scores[i])
        for j in range(len(seen.outages)):
            mean = sum(seen.scores[i, j]) / len(seen.scores[i, j])
            assert found[i, j] == pytest.approx(mean / golden)


@given(observations())
def test_the_correlation_is_scipys_and_that_of_the_ranks(seen: TargetObservations) -> None:
    found = outage_impact(seen)
    items = np.array([outage.items for outage in seen.outages])
    for row, value in zip(quality(seen), found.by_offset, strict=True):
        if len(row) < 2 or np.ptp(row) < 1e-9:
            assert value is None
            continue
        assert value == pytest.approx(stats.spearmanr(items, row).statistic)
        ranks, others = stats.rankdata(items), stats.rankdata(row)
        assert value == pytest.approx(np.corrcoef(ranks, others)[0, 1])
    defined = [value for value in found.by_offset if value is not None]
    assert found.value == (pytest.approx(sum(defined) / len(defined)) if defined else None)


@given(observations())
def test_the_analysis_of_variance_is_that_of_the_book(seen: TargetObservations) -> None:
    longest = max(range(len(seen.outages)), key=lambda j: seen.outages[j].items)
    found = data_dependency(seen)
    groups = [seen.scores[i, longest] / seen.golden_scores[i].mean() for i in range(len(seen.offsets))]
    means = [float(group.mean()) for group in groups]
    if len(groups) < 2:
        assert found.sigma is None and found.verdict is None
        return
    grand = sum(means) / len(means)
    assert found.sigma == pytest.approx(math.sqrt(sum((x - grand) ** 2 for x in means) / (len(means) - 1)), abs=1e-12)
    within = sum(float(((group - mean) ** 2).sum()) for group, mean in zip(groups, means, strict=True))
    if len(groups[0]) < 2 or max(np.ptp(group) for group in groups) < 1e-9:
        assert found.verdict is None and found.p_value is None
        return
    between = len(groups[0]) * sum((x - grand) ** 2 for x in means)
    freedom = (len(groups) - 1, len(groups) * (len(groups[0]) - 1))
    p_value = stats.f.sf((between / freedom[0]) / (within / freedom[1]), *freedom)
    assert found.p_value == pytest.approx(p_value, rel=1e-6, abs=1e-12)
    assert found.verdict == ("R" if found.p_value < 0.05 else "A")


@given(observations(), st.sampled_from([0.0, 0.03, 0.5, 2.0]), st.sampled_from([1.0, 50.0, 90.0, 100.0]))
def test_recovery_and_impact_are_equations_5_to_8(
    seen: TargetObservations, threshold: float, percentile: float
) -> None:
    outage = len(seen.outages) - 1
    found = local_impact(seen, outage, threshold=threshold, percentile=percentile)
    for i, begin in enumerate(seen.begins):
        errors = []
        for t in range(begin, seen.golden_local.shape[1]):
            golden = seen.golden_local[:, t].mean()
            errors.append(abs(seen.local[i, outage, :, t].mean() - golden) / golden)
        recovery, impact = naive(errors, threshold, percentile)
        assert found.recoveries[i] == recovery
        assert found.impacts[i] == pytest.approx(impact)
    assert found.recovery == max(found.recoveries)
    assert found.impact == max(found.impacts)


def naive(errors: list[float], threshold: float, percentile: float) -> tuple[int, float]:
    """Equations 6 to 8 with a loop for every sum."""
    counts = [sum(1 for v in range(u) if errors[v] > threshold) for u in range(len(errors) + 1)]
    if not counts[-1]:
        return 0, 0.0
    part = Fraction(percentile) / 100
    recovery = min(u for u in range(1, len(errors) + 1) if counts[u] >= part * counts[-1])
    return recovery, sum(errors[v] ** 2 for v in range(recovery) if errors[v] > threshold)


@given(st.integers(1, 3000), st.integers(1, 100))
def test_a_percentile_is_not_a_matter_of_rounding(erroneous: int, percentile: int) -> None:
    errors = np.ones(erroneous)
    expected = -(-erroneous * percentile // 100)
    assert recovery_index(errors, threshold=0.0, percentile=float(percentile)) == expected
    assert squared_errors(errors[:expected], 0.0) == expected


@given(observations())
def test_metrics_do_not_depend_on_the_order_of_repetitions_nor_on_the_unit_of_scores(seen: TargetObservations) -> None:
    found = measure(seen)
    other = measure(
        TargetObservations(
            seen.target,
            seen.offsets,
            seen.outages,
            seen.scores[:, :, ::-1] * 4.0,
            seen.golden_scores[:, ::-1] * 4.0,
            seen.local[:, :, ::-1] * 4.0,
            seen.golden_local[::-1] * 4.0,
            seen.begins,
        )
    )
    assert (found.coq.value is None) == (other.coq.value is None)
    assert found.coq.value is None or other.coq.value == pytest.approx(found.coq.value, abs=1e-9)
    assert found.doq.sigma is None or other.doq.sigma == pytest.approx(found.doq.sigma, abs=1e-9)
    assert other.local.impact == pytest.approx(found.local.impact, rel=1e-6)


@given(observations())
def test_what_equals_the_golden_runs_has_no_impact(seen: TargetObservations) -> None:
    same = np.broadcast_to(seen.golden_local.mean(axis=0), seen.local.shape)
    found = local_impact(
        TargetObservations(
            "x", seen.offsets, seen.outages, seen.scores, seen.golden_scores, same, seen.golden_local, seen.begins
        )
    )
    assert (found.recovery, found.impact) == (0, 0.0)
