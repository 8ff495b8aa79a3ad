"""What curves of models come to: when they reach a loss, and how much later than another one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import median

from afspark.model.trajectory import WINDOW, CurvePoint, halved_curve, windowed_losses

#: Of every merge: seconds, norm, items, sum of losses; as `Query.convergence` tells them.
LearningCurve = Sequence[Sequence[float]]
#: More points than that are told with half as many.
SHOWN_POINTS = 512
#: A norm or a loss is reached by whoever is above it by no more than such a part of it.
NORM_SLACK, LOSS_SLACK = 0.05, 0.005


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
    """The least loss that all of them reach, and a little more: a curve that has become flat reaches its very least loss
    at any time.
    """
    return (1.0 + LOSS_SLACK) * max(min(mean for _, mean in windowed_losses(curve)) for curve in curves)


def mean_norms(curve: LearningCurve) -> list[float]:
    """The mean norm of the newest tenth of all merges, from the first merge on that has as many up to it: single
    changes are larger and smaller by chance.

    >>> mean_norms([[1.0, 3.0, 1, 0.0], [2.0, 2.0, 1, 0.0]])
    [3.0, 2.0]
    """
    width = max(1, round(WINDOW * len(curve)))
    sums = [0.0, *accumulate(point[1] for point in curve)]
    return [(after - before) / width for before, after in zip(sums, sums[width:], strict=False)]


def settled_norm(curve: LearningCurve) -> float:
    """The mean change in the last tenth of a curve: what its model has come down to."""
    return mean_norms(curve)[-1]


def merges_to_norm(curve: LearningCurve, norm: float) -> int | None:
    """After how many merges changes were as small as ``norm`` in the mean, or nearly, and stayed so; None: they are
    not.
    """
    means = mean_norms(curve)
    larger = [at for at, mean in enumerate(means) if mean > (1.0 + NORM_SLACK) * norm]
    first = larger[-1] + 1 if larger else 0
    return None if first == len(means) else len(curve) - len(means) + first + 1


def curve_seconds_to(curve: LearningCurve, norm: float) -> float | None:
    """The same in seconds."""
    merges = merges_to_norm(curve, norm)
    return None if merges is None else curve[merges - 1][0]


def batch_excess(batches: Sequence[Sequence[float]], batch: int) -> float:
    """How many seconds longer one batch and the next took than two usual ones of the same run. ``batches``: seconds at
    the end of each, and whatever else is told of it.

    >>> batch_excess([[1.0, 0.0], [2.0, 0.0], [5.0, 0.0], [6.0, 0.0]], 2)
    2.0
    """
    ends = [one[0] for one in batches]
    taken = [after - before for before, after in pairwise(ends)]
    usual = median(taken)
    return sum(one - usual for one in taken[batch - 1 : batch + 1])


def delay_of(curve: LearningCurve, calm: LearningCurve) -> float | None:
    """By which part of its time a curve is later than a calm one at the norm that this has come down to."""
    norm = settled_norm(calm)
    return _later(curve_seconds_to(curve, norm), curve_seconds_to(calm, norm))


def delay_in_merges(curve: LearningCurve, calm: LearningCurve) -> float | None:
    """The same in merges: what the model itself is behind, without what a recovery takes."""
    norm = settled_norm(calm)
    return _later(merges_to_norm(curve, norm), merges_to_norm(calm, norm))


def part_of(seconds: float, calm: LearningCurve) -> float | None:
    """Which part so many seconds are of the time to the norm that a calm curve has come down to."""
    usual = curve_seconds_to(calm, settled_norm(calm))
    return None if usual is None else seconds / usual


def _later(found: float | None, usual: float | None) -> float | None:
    return None if usual is None or found is None else found / usual - 1.0
