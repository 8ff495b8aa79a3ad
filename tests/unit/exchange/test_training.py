"""Workers train one model while a batch is under way: through the engine, without Spark, and with failures."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.features import Features
from afspark.algorithms.linear_learners import LinearLearner, LogisticLearner
from afspark.algorithms.model_training import train
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator import model_servers
from afspark.coordinator.model_servers import ModelServers
from afspark.errors import UsageError
from afspark.exchange.server_memory import CELL_BYTES
from afspark.model.consistency import ASP, BSP, SSP, Consistency, consistency_of
from afspark.sources.given_items import GivenItems

pytestmark = pytest.mark.some(2)

SCHEMA = pa.schema([("label", pa.float64()), ("x", pa.float64()), ("y", pa.float64())])
BATCHES = 4


def rows(batch: int, count: int = 300) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(batch)
    x, y = chance.normal(size=(2, count))
    return {"label": (2 * x - y + 0.5 + 0.1 * chance.normal(size=count) > 0).astype(float), "x": x, "y": y}


def logistic(
    consistency: Consistency,
    tolerance: af.Tolerance,
    *,
    workers: int = 2,
    shards: int = 1,
    iteration: int = 40,
    wait_seconds: float = 20.0,
) -> Callable[[Any], Any]:
    def pipeline(stream: Any) -> Any:
        learner = LogisticLearner(Features(numeric=("x", "y")))
        return train(
            stream,
            learner,
            iteration=iteration,
            consistency=consistency,
            workers=workers,
            shards=shards,
            tolerance=tolerance,
            wait_seconds=wait_seconds,
        ).writeStream.outputMode("append")

    return pipeline


def model_of(query: testing.LocalQuery) -> dict[int, float]:
    found = query.results("global")
    return dict(zip(found["index"].to_pylist(), found["weight"].to_pylist(), strict=True))


def trained(pipeline: Callable[[Any], Any], between: Callable[[Any, int], None] = lambda query, batch: None) -> Any:
    with testing.run(pipeline, SCHEMA) as query:
        for batch in range(BATCHES):
            between(query, batch)
            query.batch(rows(batch))
        return model_of(query), query.results("local").to_pylist()[0]


@pytest.mark.parametrize(
    ("consistency", "shards"),
    [(BSP(), 2), (SSP(2), 1), *(pytest.param(one, 3, marks=pytest.mark.thorough) for one in (BSP(), SSP(2), ASP()))],
    ids=str,
)
def test_a_model_is_trained(consistency: Consistency, shards: int) -> None:
    model, told = trained(logistic(consistency, af.MiniBatch(), shards=shards))
    assert told["items"] == 300 * BATCHES
    assert told["prediction_rate"] > 0.9
    assert model[1] > 0 > model[2]


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), af.MiniBatch()))


EXACT = {"every batch": af.MiniBatch(), "snapshots": af.BarrierSnapshot(batches=3)}


def servers_of(query: testing.LocalQuery) -> list[Any]:
    (found,) = query._engine._stages._servers._trained.values()
    return found.servers


def lose_host(query: testing.LocalQuery, batch: int) -> None:
    if batch == 2:
        query.lose_host()


def lose_servers(query: testing.LocalQuery, batch: int) -> None:
    if batch == 2:
        for server in servers_of(query):
            os.kill(server.pid, signal.SIGKILL)


def kill_worker(query: testing.LocalQuery, batch: int) -> None:
    if batch in (1, 2):
        query.kill_worker("local", 1, lose_state=batch == 2)


def lose_model(query: testing.LocalQuery, batch: int) -> None:
    if batch == 2:
        query.kill_worker("global", 0, lose_state=True)


def new_driver(query: testing.LocalQuery, batch: int) -> None:
    if batch in (1, 3):
        query.restart_driver()


def new_driver_and_lost_host(query: testing.LocalQuery, batch: int) -> None:
    if batch == 3:
        query.lose_host()
        query.restart_driver()


FAILURES = [
    ("snapshots", lose_host),
    ("every batch", lose_servers),
    ("every batch", kill_worker),
    ("every batch", lose_model),
    ("snapshots", new_driver_and_lost_host),
]
MORE = [
    ("every batch", lose_host),
    ("snapshots", lose_servers),
    ("snapshots", kill_worker),
    ("snapshots", lose_model),
    ("every batch", new_driver_and_lost_host),
    ("every batch", new_driver),
    ("snapshots", new_driver),
]


@pytest.mark.parametrize(
    ("tolerance", "failure"),
    [*FAILURES, *(pytest.param(*one, marks=pytest.mark.thorough) for one in MORE)],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_in_rounds_the_model_is_bit_for_bit_the_same_after_failures(
    undisturbed: Any, tolerance: str, failure: Callable[[Any, int], None]
) -> None:
    assert trained(logistic(BSP(), EXACT[tolerance]), failure) == undisturbed


def test_a_lost_model_comes_back_within_theta_and_the_others_go_on() -> None:
    theta = 0.5
    with testing.run(logistic(BSP(), af.Approximate(theta=theta, items=10)), SCHEMA) as query:
        for batch in range(BATCHES):
            query.batch(rows(batch))
        before = model_of(query)
        query.lose_host(query.homes("global")[0])
        after = model_of(query)
        distance = sum((before[cell] - after.get(cell, 0.0)) ** 2 for cell in before) ** 0.5
        assert distance <= query.bounds("global")["model"] <= theta
        progress = query.batch(rows(BATCHES))
        assert query.results("local").to_pylist()[0]["items"] > 0
    (told,) = [one["metrics"] for one in progress["workers"] if one["operator"] == "global"]
    assert told["merges"] == 4
    assert told["l1"] > 0


def test_an_own_learner_of_a_gradient_finds_the_line() -> None:
    def pipeline(stream: Any) -> Any:
        learner = LinearLearner(("x", "y"), label="label", rate=4.0)
        return train(stream, learner, iteration=20, consistency=ASP(), workers=2, tolerance=af.MiniBatch())

    with testing.run(pipeline, SCHEMA) as query:
        for batch in range(BATCHES):
            given = rows(batch)
            query.batch(given | {"label": 3 * given["x"] - 2 * given["y"] + 1})
        found = query.results("global")
    weights = dict(zip(found["feature"].to_pylist(), found["weight"].to_pylist(), strict=True))
    assert weights == pytest.approx({"bias": 1.0, "x": 3.0, "y": -2.0}, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"iteration": 0}, "iteration must be"),
        ({"shards": 0}, "shards must be a whole number of at least 1, not 0"),
        ({"wait_seconds": "5"}, "wait_seconds must be above 0, not '5'"),
        ({"learner": LinearLearner}, "LinearLearner is a class, not a learner"),
        ({"workers": 5}, "5 workers of 'local' train at the same time"),
        ({"tolerance": af.ActiveStandby(interval=1)}, "cannot train a model"),
        (
            {"tolerance": af.Approximate(theta=1), "model_tolerance": af.BarrierSnapshot(batches=2)},
            "train a model go back together, which 'local' could not exactly",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(settings: dict[str, Any], said: str) -> None:
    def pipeline(stream: Any) -> Any:
        given = {"iteration": 5, "tolerance": af.MiniBatch(), "workers": 2} | settings
        return train(stream, given.pop("learner", LinearLearner(("x", "y"))), **given)

    def attempt() -> None:
        with testing.run(pipeline, SCHEMA, hosts=1) as query:
            query._cluster.slots = {"host0": 4}
            query.batch(rows(0))

    with pytest.raises(UsageError, match=said):
        attempt()


class _Large(LinearLearner):
    def __init__(self, cells: int) -> None:
        super().__init__(("x", "y"))
        self._cells = cells

    @property
    def cells(self) -> int:
        return self._cells


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (0, "cells must be a whole number from 1"),
        (2**32, "A vector has at most"),
        (2**27 + 1, "too many for 1 shards. Use shards=2 or more"),
        (1000, "model servers beside the driver need 0.0 GB; 0.0 GB are free"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(cells: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "free_bytes", lambda: 10_000)

    def pipeline(stream: Any) -> Any:
        return train(stream, _Large(cells), iteration=5, tolerance=af.MiniBatch())

    def attempt() -> None:
        with testing.run(pipeline, SCHEMA) as query:
            query.batch(rows(0))

    with pytest.raises(UsageError, match=said):
        attempt()


@pytest.mark.parametrize(
    ("servers", "models", "refused"), [("driver", 1, False), ("driver", 2, True), ("executors", 2, False)]
)
def test_only_what_servers_beside_the_driver_need_together_must_be_free_there(
    servers: str, models: int, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_servers, "free_bytes", lambda: 1500 * CELL_BYTES)

    def pipeline(stream: Any) -> Any:
        return [
            train(
                stream,
                _Large(1000),
                iteration=5,
                tolerance=af.MiniBatch(),
                local=f"local{number}",
                name=f"global{number}",
                servers=servers,
            )
            for number in range(models)
        ]

    assembled = testing._assembled(pipeline, [GivenItems(0, SCHEMA)])
    found = ModelServers(LocalCluster({"host": 4}), assembled)
    if refused:
        with pytest.raises(UsageError, match="'local0' and 'local1' would train has 2,000 cells"):
            found.check_sizes()
    else:
        found.check_sizes()


def test_steps_that_nobody_can_make_are_refused() -> None:
    with pytest.raises(UsageError, match="from 0 on"):
        SSP(-1)
    with pytest.raises(UsageError, match="bsp, ssp:STEPS or asp"):
        consistency_of("ssp")
