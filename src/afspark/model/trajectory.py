"""How a model converges: its merges in the order of time, what they cost, and from when on its changes are small."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: A longer curve is told with half as many points.
MOST_POINTS = 8192
#: Into so many spans of equally many items a curve is divided to find the least loss.
SPANS = 10
#: The share of all items over which a loss is averaged, so that it is that of the model and not of single steps.
WINDOW = 0.1


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """One merge, or some after each other: the time of the last, the largest norm, items and losses of all of them."""

    at: float
    norm: float
    items: int
    loss: float

    def followed_by(self, other: CurvePoint) -> CurvePoint:
        return CurvePoint(
            at=other.at,
            norm=max(self.norm, other.norm),
            items=self.items + other.items,
            loss=self.loss + other.loss,
        )

    def to_json(self) -> list[float]:
        return [self.at, self.norm, self.items, self.loss]

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> CurvePoint:
        at, norm, items, loss = fields
        return cls(at=at, norm=norm, items=items, loss=loss)


class Trajectory:
    """The merges of one model since ``began``, a time in seconds."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.points: list[CurvePoint] = []
        self.merges = self.items = 0
        self.loss = 0.0

    def add(self, points: Iterable[CurvePoint]) -> None:
        for point in points:
            self.points.append(point)
            self.merges += 1
            self.items += point.items
            self.loss += point.loss
            if len(self.points) > MOST_POINTS:
                self.points = halved_curve(self.points)

    @property
    def norm(self) -> float:
        """Of the last change."""
        return self.points[-1].norm if self.points else 0.0

    def seconds_to(self, norm: float) -> float | None:
        """How long it took until changes were at most so large, and stayed so; None: they are not."""
        return seconds_to_norm(self.points, norm, self.began)

    def regret(self, blank_loss: float | None) -> float:
        """See `estimated_regret`."""
        return estimated_regret(self.points, blank_loss)


def windowed_losses(curve: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Seconds and mean loss of the newest tenth of all items, from the first point on with as many before it. Points
    are seconds, norm, items and sum of losses.

    >>> windowed_losses([[1.0, 0, 10, 8.0], [2.0, 0, 10, 6.0]])
    [(1.0, 0.8), (2.0, 0.6)]
    """
    width = WINDOW * sum(point[2] for point in curve)
    found, items, loss, first = [], 0.0, 0.0, 0
    for seconds, _, count, cost in curve:
        items, loss = items + count, loss + cost
        while items - curve[first][2] >= width:
            items, loss, first = items - curve[first][2], loss - curve[first][3], first + 1
        if items >= width:
            found.append((seconds, loss / items))
    return found


def halved_curve(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Every two points as one; of an odd number the last stays alone."""
    pairs = [first.followed_by(second) for first, second in zip(points[::2], points[1::2], strict=False)]
    return [*pairs, *points[2 * len(pairs) :]]


def seconds_to_norm(points: Sequence[CurvePoint], norm: float, began: float) -> float | None:
    """Seconds from ``began`` to the first change of at most ``norm`` that no larger one follows; None: there is none.

    >>> curve = [CurvePoint(at=10.0 + at, norm=norm, items=1, loss=0.0) for at, norm in enumerate((9, 2, 4, 1, 2))]
    >>> seconds_to_norm(curve, 3, 10.0), seconds_to_norm(curve, 1, 10.0)
    (3.0, None)
    """
    settled = None
    for point in points:
        if point.norm > norm:
            settled = None
        elif settled is None:
            settled = point.at - began
    return settled


def least_span_loss(points: Sequence[CurvePoint]) -> float:
    """The least mean loss of an item in any of ten spans of about equally many items; infinite without items."""
    total = sum(point.items for point in points)
    least, items, loss, spans = math.inf, 0, 0.0, 0
    seen = 0
    for point in points:
        items, loss, seen = items + point.items, loss + point.loss, seen + point.items
        if items and seen * SPANS >= (spans + 1) * total:
            least, items, loss = min(least, loss / items), 0, 0.0
            spans = seen * SPANS // total
    return least


def estimated_regret(points: Sequence[CurvePoint], blank_loss: float | None) -> float:
    """What the items have cost on the way beyond what they would have cost a fixed model, the better of two: that of
    zeros, which costs ``blank_loss`` an item (None: not known), and one for which any item is as cheap as those of the
    best tenth of the curve were.

    The first is exact. The second is an estimate, of items that do not change their nature; it is at most what the
    regret against the best fixed model is then, apart from chance.

    >>> curve = [CurvePoint(at=0.0, norm=0.0, items=10, loss=loss) for loss in (9.0, 5.0, 4.0)]
    >>> estimated_regret(curve, None), estimated_regret(curve, 0.1)
    (6.0, 15.0)
    """
    items = sum(point.items for point in points)
    if not items:
        return 0.0
    cheapest = min(least_span_loss(points), math.inf if blank_loss is None else blank_loss)
    return math.fsum(point.loss for point in points) - items * cheapest
