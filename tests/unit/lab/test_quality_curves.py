"""Curves of quality against outage give back what made the qualities."""

from __future__ import annotations

import numpy as np
import pytest

from afspark.lab.observations import Outage, Rate, Scores, TargetObservations
from afspark.lab.quality_curves import fit_quality, measured_rates

SECONDS = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])


def observed(curve: Scores, *, noise: float = 0.0) -> TargetObservations:
    """Two offsets, each with the qualities of ``curve``, one for each of `SECONDS` at 100 items a second."""
    random = np.random.default_rng(3)
    qualities = np.tile(curve[None, :, None], (2, 1, 3))
    return TargetObservations(
        "filter",
        (1, 2),
        tuple(Outage(int(100 * seconds), float(seconds), Rate.PEAK) for seconds in SECONDS),
        scores=50.0 * qualities * (1 + noise * random.standard_normal((2, 6, 3))),
        golden_scores=np.full((2, 4), 50.0),
        local=np.zeros((2, 6, 3, 0)),
        golden_local=np.zeros((4, 0)),
        begins=(0, 0),
    )


def test_a_straight_line_is_found_and_read_off() -> None:
    curve = fit_quality(observed(1 - SECONDS / 16))
    assert curve is not None and curve.form == "line"
    assert curve.after(4.0) == pytest.approx(0.75)
    assert curve.at(1600) == pytest.approx(0.0, abs=1e-9)
    assert curve.longest_within(0.25) == pytest.approx(400, abs=2)
    assert curve.deviation == pytest.approx(0.0, abs=1e-9)
    assert curve.sentence(4.0) == (
        "an outage of 4 s of filter at the peak rate makes the score of the affected section 25% too low"
    )
    assert curve.sentence(20.0).endswith("(longer than any that was tried)")
    assert curve.formula == "1 - 0.000625·x"


@pytest.mark.parametrize(
    ("form", "qualities", "after_3"),
    [
        ("saturation", 1 + 2 * (1 - np.exp(-SECONDS / 3)), 1 + 2 * (1 - np.exp(-1.0))),
        ("power", 1 - 0.2 * SECONDS**0.5, 1 - 0.2 * 3**0.5),
    ],
)
def test_bent_curves_are_found(form: str, qualities: Scores, after_3: float) -> None:
    curve = fit_quality(observed(qualities))
    assert curve is not None and curve.form == form
    assert curve.after(3.0) == pytest.approx(after_3, abs=1e-3)
    assert curve.to_json()["quality_after_seconds"]["peak"]["16"] == pytest.approx(qualities[-1], abs=1e-3)
    assert curve.formula.startswith("1 ")


def test_noise_does_not_bend_a_line() -> None:
    curve = fit_quality(observed(1 + SECONDS / 10, noise=0.02))
    assert curve is not None and curve.form == "line"
    assert curve.after(8.0) == pytest.approx(1.8, abs=0.05)
    assert "too high" in curve.sentence(8.0)


def test_without_a_high_correlation_there_is_no_curve() -> None:
    assert fit_quality(observed(np.array([1.0, 1.2, 0.9, 1.1, 0.8, 1.05]))) is None
    assert fit_quality(observed(np.ones(6))) is None


def test_a_loss_within_reach_everywhere_is_the_longest_outage() -> None:
    curve = fit_quality(observed(1 - SECONDS / 160))
    assert curve is not None
    assert curve.longest_within(0.5) == 1600
    assert curve.longest_within(0.0) == 0.0


def test_rates_are_those_of_outages_in_seconds() -> None:
    seen = observed(1 - SECONDS / 16)
    assert measured_rates(seen) == {Rate.PEAK: 100.0}
    given = TargetObservations(
        "filter", seen.offsets, (Outage(5),), seen.scores, seen.golden_scores, seen.local, seen.golden_local, (0, 0)
    )
    assert measured_rates(given) == {}
