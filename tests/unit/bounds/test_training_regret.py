"""Theorem 1 for workers that train together: the form that is checked, and that plain training is within it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from afspark.bounds.learning import Risk, regret_bound
from afspark.bounds.training_regret import RegretVerdict, TrainingRisk

ROWS = 6


def test_for_one_worker_it_is_the_theorem_of_the_paper() -> None:
    risk, longest = TrainingRisk(gradient=3.0, rate=1.0, workers=1), 1.5
    plain = Risk(gradient=3.0, diameter=math.sqrt(2.0) * longest)
    for failures in (0, 2):
        found = risk.bound(items=400, longest=longest, failures=failures, theta=5.0)
        assert found == pytest.approx(regret_bound(plain, steps=400, failures=failures, theta=5.0))


def test_it_grows_with_the_root_of_items_and_workers() -> None:
    one = TrainingRisk(gradient=2.0, rate=0.5, workers=1)
    four = TrainingRisk(gradient=2.0, rate=0.5, workers=4)
    assert one.bound(items=400, longest=1.0) == pytest.approx(2 * one.bound(items=100, longest=1.0))
    assert four.bound(items=100, longest=1.0) == pytest.approx(2 * one.bound(items=100, longest=1.0))
    assert one.bound(items=0, longest=1.0) == 0.0


def _trained(seed: int, workers: int, *, rate: float) -> RegretVerdict:
    """Logistic regression by workers whose models are averaged every five items; the regret against the model they came
    to, shortened to the longest of all that they had.
    """
    chance, rounds, step = np.random.default_rng(seed), 200, 5
    hidden = chance.normal(size=ROWS)
    x = chance.normal(size=(rounds * step, workers, ROWS))
    x /= np.maximum(1.0, np.linalg.norm(x, axis=2, keepdims=True))
    y = (x @ hidden + 0.3 * chance.normal(size=x.shape[:2]) > 0) * 2.0 - 1.0
    model, spent, longest, t = np.zeros(ROWS), 0.0, 0.0, 0
    for start in range(0, rounds * step, step):
        local = np.tile(model, (workers, 1))
        for at in range(start, start + step):
            t += 1
            margin = y[at] * np.einsum("wr,wr->w", local, x[at])
            spent += float(np.logaddexp(0.0, -margin).sum())
            local += (rate / math.sqrt(t) * y[at] / (1.0 + np.exp(margin)))[:, None] * x[at]
            longest = max(longest, float(np.linalg.norm(local, axis=1).max()))
        model = local.mean(axis=0)
    fixed = float(np.logaddexp(0.0, -y * (x @ model)).sum())
    items = rounds * step * workers
    bound = TrainingRisk(gradient=1.0, rate=rate, workers=workers).bound(items=items, longest=longest)
    return RegretVerdict(items=items, regret=spent - fixed, bound=bound, failures=0)


@pytest.mark.parametrize("workers", [1, 3, 11])
@pytest.mark.parametrize("seed", range(4))
def test_averaged_workers_are_within_it(seed: int, workers: int) -> None:
    verdict = _trained(seed, workers, rate=1.0)
    assert verdict.held
    assert verdict.regret > 0
    assert verdict.to_json()["held"] is True


def test_a_regret_above_it_is_told() -> None:
    verdict = RegretVerdict(items=10, regret=3.0, bound=2.0, failures=1)
    assert not verdict.held
    assert "1 failures" in str(verdict)
