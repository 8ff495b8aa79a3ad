"""The quality of learners on the same data as the formulas that scikit-learn and river document."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from afspark.algorithms.linear_learners import LogisticLearner
from afspark.exchange.rounds import Push, Rounds
from afspark.model.consistency import ASP, BSP, Consistency
from afspark.sources import Higgs
from afspark.sources.chunks import NumberedChunk
from tests.twins.learners_twin import progressive_log_loss

ITEMS = 32768
#: How much more an item may cost workers that train together: each begins with long steps of its own. That fades with
#: the number of items; four workers miss it with 8,192 of them, by 0.0115.
TOLERANCE = 0.01


@pytest.fixture(scope="module")
def collisions() -> pa.RecordBatch:
    (items,) = Higgs(ITEMS, seed=3).read(NumberedChunk(index=0, units=ITEMS, bytes=0))
    return items


@pytest.fixture(scope="module")
def documented(collisions: pa.RecordBatch) -> tuple[float, np.ndarray]:
    rows = collisions.column("features").flatten().to_numpy().reshape(ITEMS, -1).astype(float)
    return progressive_log_loss(rows, collisions.column("label").to_numpy())


def learner(items: pa.RecordBatch) -> LogisticLearner:
    found = LogisticLearner()
    found.check(items.schema)
    return found


def test_one_worker_has_the_loss_and_the_model_of_the_documented_formula(
    collisions: pa.RecordBatch, documented: tuple[float, np.ndarray]
) -> None:
    ours = learner(collisions)
    model, loss = np.zeros(ours.cells), 0.0
    for seen in range(0, ITEMS, 1000):
        learned = ours.learn(model, collisions.slice(seen, 1000), seen)
        model[learned.change.index] += learned.change.values
        loss += learned.facts.loss
    expected, weights = documented
    assert loss / ITEMS == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(model, weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("consistency", [BSP(), ASP()], ids=str)
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_together_have_the_loss_of_one_within_a_hundredth(
    collisions: pa.RecordBatch, documented: tuple[float, np.ndarray], consistency: Consistency, workers: int
) -> None:
    ours, step, share = learner(collisions), 64, ITEMS // workers
    rounds = Rounds(np.zeros(ours.cells), range(workers), consistency)
    for number in range(share // step):
        begun = rounds.versions.model.copy()
        for worker in range(workers):
            model = begun if consistency.in_rounds else rounds.versions.model.copy()
            items = collisions.slice(worker * share + number * step, step)
            learned = ours.learn(model, items, number * step)
            push = Push(worker=worker, step=number, facts=learned.facts, cells=learned.change, digest=str(number))
            rounds.push(push)
    loss = sum(merge.facts.loss for merge in rounds.merges()) / ITEMS
    assert sum(merge.facts.items for merge in rounds.merges()) == ITEMS
    assert loss <= documented[0] + TOLERANCE
