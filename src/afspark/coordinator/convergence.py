"""How a model converges that workers train, as its driver has seen it; and whether its regret is within theorem 1."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from afspark.bounds import RegretVerdict, TrainingRisk
from afspark.model.training import Training
from afspark.model.trajectory import MOST_POINTS, CurvePoint, Trajectory

LOG = logging.getLogger("afspark")


class Convergence:
    """Of one model, ``name``, which so many workers train; ``theta``: what its tolerance lets a failure take."""

    def __init__(self, training: Training, *, workers: int, theta: float, name: str) -> None:
        self._name, self._theta, self._convex = name, theta, training.convex
        self._risk = None
        if training.convex is not None:
            self._risk = TrainingRisk(gradient=training.convex.steepest, rate=training.convex.rate, workers=workers)
        self.trajectory: Trajectory | None = None
        #: of the last batches: when its last merge was made, and the L1 norm of what the whole batch has changed
        self._by_batch: deque[tuple[float, float]] = deque(maxlen=MOST_POINTS)
        self._longest = 0.0
        self.verdict: RegretVerdict | None = None

    def take_up(self, metrics: Sequence[Mapping[str, Any]], *, failures: int, learned: int) -> None:
        """What the workers that have the model tell of a batch, one for each shard. So far there were so many
        ``failures``, and workers have ``learned`` from so many items, also for drivers before this one.
        """
        told = [one for one in metrics if one.get("curve")]
        if not told:
            return
        if self.trajectory is None:
            self.trajectory = Trajectory(told[0]["began"])
        self.trajectory.add(whole_curve([one["curve"] for one in told]))
        at = self.trajectory.points[-1].at
        self._by_batch.append((at, math.fsum(one["batch_l1"] for one in told)))
        self._longest = max(self._longest, math.hypot(*(one["length"] for one in told)))
        self._judge(failures, max(learned, self.trajectory.items))

    def _judge(self, failures: int, steps: int) -> None:
        if self._risk is None or self._convex is None or self.trajectory is None:
            return
        items, before = self.trajectory.items, self.verdict
        bound = self._risk.bound(items=steps, longest=self._longest, failures=failures, theta=self._theta)
        regret = self.trajectory.regret(self._convex.blank_loss)
        self.verdict = RegretVerdict(items=items, regret=regret, bound=bound, failures=failures)
        if not self.verdict.held and (before is None or before.held):
            LOG.error(
                "The model of %r does not converge as theorem 1 promises: its regret is %s. Either the learner is not"
                " as it declares (convex losses, gradients of limited length, steps that shrink like 1/√t), or a"
                " recovery has done something wrong.",
                self._name,
                self.verdict,
            )

    def seconds_to(self, norm: float) -> float | None:
        return None if self.trajectory is None else self.trajectory.seconds_to(norm)

    def curve(self) -> list[list[float]]:
        """Of every merge: seconds since the first batch was begun, norm, items, sum of losses."""
        if self.trajectory is None:
            return []
        began = self.trajectory.began
        return [[one.at - began, one.norm, one.items, one.loss] for one in self.trajectory.points]

    def by_batch(self) -> list[list[float]]:
        """Of every batch: seconds since the first was begun, and the norm of what it has changed as a whole."""
        if self.trajectory is None:
            return []
        return [[at - self.trajectory.began, norm] for at, norm in self._by_batch]

    def to_json(self) -> dict[str, Any]:
        found = self.trajectory
        if found is None:
            return {"merges": 0, "items": 0}
        told: dict[str, Any] = {
            "merges": found.merges,
            "items": found.items,
            "l1": found.norm,
            "log_loss": found.loss / found.items if found.items else None,
            "seconds": found.points[-1].at - found.began,
        }
        blank = None if self._convex is None else self._convex.blank_loss
        unchecked = {"regret": found.regret(blank), "regret_bound": None, "held": None}
        return {**told, **(unchecked if self.verdict is None else self.verdict.to_json())}


def whole_curve(shards: Sequence[Sequence[Sequence[Any]]]) -> list[CurvePoint]:
    """The merges of a whole model, by the time of the last shard to make them: norms of shards add up. Shards may make
    the same merges, told by worker and step behind each point, in another order.

    >>> first = [[1.0, 2.0, 8, 0.5, 0, 0], [1.2, 1.0, 6, 0.4, 1, 0]]
    >>> second = [[1.5, 4.0, 6, 0.4, 1, 0], [1.6, 3.0, 8, 0.5, 0, 0]]
    >>> [point.to_json() for point in whole_curve([first, second])]
    [[1.5, 5.0, 6, 0.4], [1.6, 5.0, 8, 0.5]]
    """
    parts: dict[tuple[int, int], list[CurvePoint]] = {}
    for *point, worker, step in chain.from_iterable(shards):
        parts.setdefault((worker, step), []).append(CurvePoint.from_json(point))
    found = [
        CurvePoint(
            at=max(one.at for one in points),
            norm=math.fsum(one.norm for one in points),
            items=points[0].items,
            loss=points[0].loss,
        )
        for points in parts.values()
    ]
    return sorted(found, key=lambda point: point.at)
