"""Convergence as users are told of it: norms, losses, regret and its bound, through the engine and without."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

import afspark as af
from afspark import testing
from afspark.coordinator.convergence import Convergence
from afspark.errors import UsageError
from afspark.model.consistency import BSP
from afspark.model.training import ConvexLoss, Training
from tests.unit.exchange.test_training import SCHEMA, logistic, rows

CONVEX = ConvexLoss(steepest=1.0, rate=1.0, blank_loss=0.7)


def convergence(convex: ConvexLoss | None = CONVEX) -> Convergence:
    training = Training(model="m", cells=1, consistency=BSP(), iteration=1, convex=convex)
    return Convergence(training, workers=2, theta=0.5, name="m")


def told(*losses: float, items: int = 1000, length: float = 3.0) -> list[dict[str, Any]]:
    curve = [[10.0 + at, 1.0, items, loss * items, 0, at] for at, loss in enumerate(losses)]
    return [{"curve": curve, "began": 9.0, "length": length, "batch_l1": 2.0}]


def test_a_model_that_learns_is_within_the_theorem(caplog: pytest.LogCaptureFixture) -> None:
    found = convergence()
    found.take_up(told(0.7, 0.5, 0.4, 0.4), failures=0, learned=4000)
    shown = found.to_json()
    assert shown["held"] is True
    assert 0 < shown["regret"] <= shown["regret_bound"]
    assert not caplog.records


def test_a_violation_is_said_once_and_loudly(caplog: pytest.LogCaptureFixture) -> None:
    found = convergence()
    for _ in range(2):
        found.take_up(told(*[2.0] * 5, length=1.0), failures=1, learned=5000)
    assert found.to_json()["held"] is False
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert "does not converge as theorem 1 promises" in said.getMessage()


def test_without_a_convex_loss_nothing_is_promised() -> None:
    found = convergence(None)
    found.take_up(told(*[2.0] * 5), failures=0, learned=5000)
    assert found.to_json()["held"] is None
    assert found.to_json()["regret"] == 0.0


def test_failures_and_earlier_items_are_in_the_bound() -> None:
    bounds = []
    for failures, learned in ((0, 4000), (3, 4000), (0, 16000)):
        found = convergence()
        found.take_up(told(0.7, 0.5, 0.4, 0.4), failures=failures, learned=learned)
        bounds.append(found.to_json()["regret_bound"])
    calm, failed, later = bounds
    assert failed > calm
    assert later == pytest.approx(2 * calm)


def test_merges_of_shards_are_told_together_in_whatever_order_they_were_made() -> None:
    found, chance = convergence(), random.Random(3)
    merges = [(worker, step) for worker in (0, 1) for step in range(20)]
    orders = [chance.sample(merges, len(merges)) for _ in range(3)]
    shards = [
        {
            "curve": [
                [10.0 + at, worker + 2.0**-step, 10 * worker, step, worker, step] for at, (worker, step) in order
            ],
            "began": 9.0,
            "length": 1.0,
            "batch_l1": 1.0,
        }
        for order in map(list, map(enumerate, orders))
    ]
    found.take_up(shards, failures=0, learned=1)
    curve = found.curve()
    assert sorted(map(tuple, curve)) == sorted(
        (1.0 + max(order.index(merge) for order in orders), 3 * (merge[0] + 2.0 ** -merge[1]), 10 * merge[0], merge[1])
        for merge in merges
    )
    assert [point[0] for point in curve] == sorted(point[0] for point in curve)


def test_every_shard_sends_rows_of_its_own() -> None:
    with testing.run(logistic(BSP(), af.MiniBatch(), shards=2), SCHEMA) as query:
        query.batch(rows(0))
        told = query.items("global")
    assert told is not None
    items = told.group_by("shard").aggregate([("items", "sum")]).sort_by("shard")
    assert items.to_pydict() == {"shard": [0, 1], "items_sum": [300, 300]}


def test_progress_and_query_tell_norm_loss_regret_and_times() -> None:
    with testing.run(logistic(BSP(), af.MiniBatch(), shards=2), SCHEMA) as query:
        for batch in range(2):
            progress = query.batch(rows(batch))
        shown = progress["training"]["global"]
        found = query.convergence("global", norm=1e9)
        with pytest.raises(UsageError, match="No model is trained there"):
            query.convergence("local")
        restarted = query.results("local").to_pylist()[0]
    assert shown["items"] == restarted["items"] == 600
    assert shown["merges"] == 8
    assert shown["log_loss"] == pytest.approx(restarted["log_loss"])
    assert shown["held"] is True
    assert len(found["curve"]) == 8
    times = [point[0] for point in found["curve"]]
    assert times == sorted(times) and times[0] > 0
    assert found["seconds_to_norm"] == times[0]
    assert found["l1"] == pytest.approx(found["curve"][-1][1])
    # A batch changes the model by no more than its merges one by one.
    assert [at for at, _ in found["batches"]] == [times[3], times[7]]
    for batch, (_, norm) in enumerate(found["batches"]):
        assert 0 < norm <= sum(point[1] for point in found["curve"][4 * batch : 4 * batch + 4]) * (1 + 1e-9)


def test_pushes_and_pulls_of_the_last_batch_are_told() -> None:
    with testing.run(logistic(BSP(), af.MiniBatch()), SCHEMA) as query:
        assert query.exchanges() == {}
        query.batch(rows(0))
        found = query.exchanges()["local"]
        query._engine.close()
        assert query.exchanges()["local"] == found, "the last batch is told after the end as well"
    assert sorted((worker, step) for worker, _, step, _ in found["pushes"]) == [
        (worker, step) for worker in (0, 1) for step in range(4)
    ]
    assert all(asked <= answered for _, _, _, asked, answered, _ in found["pulls"])
    assert {version for *_, version in found["pulls"]} == set(range(5))
