"""Curves of models: when changes are small for good, and what items have cost beyond a fixed model."""

from __future__ import annotations

import math

import pytest

from afspark.model import trajectory
from afspark.model.trajectory import CurvePoint, Trajectory, estimated_regret, halved_curve, least_span_loss


def curve(*losses: float, items: int = 10) -> list[CurvePoint]:
    return [CurvePoint(at=float(at), norm=1.0 / (1 + at), items=items, loss=loss) for at, loss in enumerate(losses, 1)]


def test_a_norm_is_reached_when_no_larger_change_follows() -> None:
    found = Trajectory(began=0.0)
    found.add(
        [CurvePoint(at=at, norm=norm, items=1, loss=0.0) for at, norm in ((1, 5), (2, 1), (3, 4), (4, 1), (5, 0.5))]
    )
    assert found.seconds_to(1.0) == 4
    assert found.seconds_to(4.0) == 2
    assert found.seconds_to(0.1) is None
    assert found.norm == 0.5


def test_the_regret_is_against_the_best_tenth_or_the_model_of_zeros() -> None:
    points = curve(*([8.0] * 5 + [6.0] * 4 + [5.0]))
    assert least_span_loss(points) == 0.5
    assert estimated_regret(points, None) == pytest.approx(8 * 5 + 6 * 4 + 5 - 100 * 0.5)
    assert estimated_regret(points, 0.4) == pytest.approx(8 * 5 + 6 * 4 + 5 - 100 * 0.4)
    assert estimated_regret([], 0.4) == 0.0


def test_a_model_that_gets_worse_has_a_regret() -> None:
    assert estimated_regret(curve(*range(1, 21)), None) > 0


def test_one_that_never_learns_has_a_regret_against_zeros() -> None:
    assert estimated_regret(curve(*[9.0] * 20), None) == 0.0
    assert estimated_regret(curve(*[9.0] * 20), math.log(2.0)) == pytest.approx(180 - 200 * math.log(2.0))


def test_spans_have_about_equally_many_items_however_merges_divide_them() -> None:
    few = [CurvePoint(at=0.0, norm=0.0, items=items, loss=items * cost) for items, cost in ((1, 0.0), (99, 1.0))]
    # One item of a hundred is no tenth.
    assert least_span_loss(few) > 0.9


def test_a_long_curve_is_told_with_fewer_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectory, "MOST_POINTS", 8)
    found = Trajectory(began=0.0)
    found.add(curve(*range(20)))
    assert len(found.points) <= 8
    assert found.merges == 20
    assert sum(point.items for point in found.points) == found.items == 200
    assert sum(point.loss for point in found.points) == found.loss
    assert found.points[-1].at == 20
    assert halved_curve(curve(1.0, 2.0, 3.0))[0].norm == 0.5
