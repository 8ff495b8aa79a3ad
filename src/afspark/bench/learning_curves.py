"""What curves of models come to: when they reach a loss, and how much later than another one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from afspark.model.trajectory import CurvePoint, halved_curve, seconds_to_norm, windowed_losses

#: Of every merge: seconds, norm, items, sum of losses; as `Query.convergence` tells them.
LearningCurve = Sequence[Sequence[float]]
#: More points than that are told with half as many.
SHOWN_POINTS = 512


def thinned_curve(curve: LearningCurve) -> list[list[float]]:
    """A curve with fewer points: of neighbours the later time and the larger norm, items and losses added up.

    >>> thinned_curve([[1.0, 0.5, 2, 1.0]])
    [[1.0, 0.5, 2, 1.0]]
    """
    points = [CurvePoint.from_json(point) for point in curve]
    while len(points) > SHOWN_POINTS:
        points = halved_curve(points)
    return [point.to_json() for point in points]


def seconds_to_loss(curve: LearningCurve, loss: float) -> float | None:
    """When the newest items cost no more than so much each, for the first time; None: never."""
    return next((seconds for seconds, mean in windowed_losses(curve) if mean <= loss), None)


def shared_loss(curves: Sequence[LearningCurve]) -> float:
    """The least loss that all of them reach."""
    return max(min(mean for _, mean in windowed_losses(curve)) for curve in curves)


def settled_norm(curve: LearningCurve) -> float:
    """The largest change in the last fifth of a curve: what its model has come down to."""
    return max(point[1] for point in curve[-max(1, len(curve) // 5) :])


def curve_seconds_to(curve: LearningCurve, norm: float) -> float | None:
    """When changes were no larger than that, and stayed so; None: they are not."""
    points = [CurvePoint(at=at, norm=size, items=int(items), loss=loss) for at, size, items, loss in curve]
    return seconds_to_norm(points, norm, 0.0)


def batch_excess(batches: Sequence[Sequence[float]], batch: int) -> float:
    """How many seconds longer one batch took than the usual one of the same run. ``batches``: seconds at the end of
    each, and whatever else is told of it.

    >>> batch_excess([[1.0, 0.0], [2.0, 0.0], [5.0, 0.0], [6.0, 0.0]], 2)
    2.0
    """
    ends = [one[0] for one in batches]
    taken = [after - before for before, after in pairwise(ends)]
    return taken[batch - 1] - median(taken)


def delay_of(curve: LearningCurve, calm: LearningCurve) -> float | None:
    """By which part of its time a curve is later than a calm one at the norm that this has come down to."""
    norm = settled_norm(calm)
    usual, later = curve_seconds_to(calm, norm), curve_seconds_to(curve, norm)
    return None if usual is None or later is None else later / usual - 1.0


def part_of(seconds: float, calm: LearningCurve) -> float | None:
    """Which part so many seconds are of the time to the norm that a calm curve has come down to."""
    usual = curve_seconds_to(calm, settled_norm(calm))
    return None if usual is None else seconds / usual
