"""Mistakes in what a model server keeps, and in how those who train come back: planted in the real code, with a server
in this process, each must change the model or stop the query where something dies at a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import afspark as af
from afspark import testing
from afspark.coordinator import model_servers, stage_runner
from afspark.coordinator.stage_runner import StageRunner
from afspark.errors import AfsparkError
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.model_server import ModelServer
from afspark.exchange.rounds import Push, PushOutcome, Rounds
from afspark.model.consistency import ASP, BSP
from tests.unit.exchange.step_troubles import DIES_AFTER, MODEL_HOST, SERVER, Moment, Troubles, trained_among
from tests.unit.exchange.test_training import BATCHES, EXACT, SCHEMA, logistic, model_of, rows, trained

Plant = Callable[[pytest.MonkeyPatch], None]


class ServerHere:
    """A model server without a process of its own."""

    lives = True

    def __init__(self, size: int, *, host: str, secret: str) -> None:
        self._server = ModelServer(size, host=host, secret=secret)
        self.address = self._server.address

    @property
    def pid(self) -> int:
        raise AssertionError("There is no process to kill.")

    def give_up(self) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), af.MiniBatch()))


def merges_what_is_repeated(patch: pytest.MonkeyPatch) -> None:
    """A share that runs again is merged again."""
    real = Rounds.push

    def push(self: Rounds, given: Push) -> PushOutcome:
        found = real(self, given)
        if found is not PushOutcome.TAKEN and self.consistency.in_rounds:
            self.versions.model[given.cells.index] += 0.5 * given.cells.values
        elif found is not PushOutcome.TAKEN:
            self.versions.merge([(given.cells, 0.5)])
            self.merged.append([given])
        return found

    patch.setattr(Rounds, "push", push)


def answers_with_the_newest(patch: pytest.MonkeyPatch) -> None:
    """Whoever runs its share again is given the model that others have made since."""
    patch.setattr(Rounds, "version_for", lambda self, step: self.versions.newest)


def keeps_the_base_of_the_batch_before(patch: pytest.MonkeyPatch) -> None:
    """The next batch begins with the model that this one began with."""
    real = ModelServer._result

    def result(self: ModelServer, told: dict[str, Any]) -> dict[str, Any]:
        becomes = told["becomes"]
        first = next(iter(self._batches.values())).rounds.versions._first
        found = real(self, told)
        self._models[becomes] = first.copy()
        return found

    patch.setattr(ModelServer, "_result", result)


def loads_the_model_of_an_earlier_batch(patch: pytest.MonkeyPatch) -> None:
    """A server that was lost twice is given the same model twice."""
    real = ServerCalls.load
    first: list[Any] = []

    def load(self: ServerCalls, base: str, cells: Any, size: int) -> None:
        first.append(cells)
        real(self, base, first[0], size)

    patch.setattr(ServerCalls, "load", load)


def lost_model_stays_behind(patch: pytest.MonkeyPatch) -> None:
    """The operator that has the model comes back at an earlier batch, and nobody replays what lies between."""
    patch.setattr(StageRunner, "_catch_up", lambda self, runs, batch: True)


#: Servers live in processes of their own where they are to be killed.
IN_SERVERS: list[tuple[Plant, dict[Moment, str]]] = [
    (merges_what_is_repeated, {Moment(1, 0, 2): DIES_AFTER}),
    (answers_with_the_newest, {Moment(1, 1, 2): DIES_AFTER}),
    (keeps_the_base_of_the_batch_before, {}),
]
IN_DRIVERS: list[tuple[Plant, str, dict[Moment, str]]] = [
    (loads_the_model_of_an_earlier_batch, "every batch", {Moment(1, 0, 1): SERVER, Moment(3, 1, 2): SERVER}),
    (lost_model_stays_behind, "snapshots", {Moment(2, 0, 1): MODEL_HOST}),
]


def nothing(patch: pytest.MonkeyPatch) -> None:
    """No mistake."""


def _differs(
    undisturbed: Any, patch: pytest.MonkeyPatch, plant: Plant, tolerance: str, plan: dict[Moment, str]
) -> bool:
    plant(patch)
    patch.setattr(stage_runner, "BATCH_TRIES", 5)
    pipeline = logistic(BSP(), EXACT[tolerance], wait_seconds=3.0)
    try:
        model, told, _ = trained_among(patch, pipeline, Troubles(plan))
    except (AfsparkError, AssertionError):
        return True
    return bool((model, told) != undisturbed)


@pytest.mark.parametrize(("plant", "plan"), IN_SERVERS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_mistake_in_a_server_is_found(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, plant: Plant, plan: dict[Moment, str]
) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    assert not _differs(undisturbed, monkeypatch, nothing, "every batch", plan)
    monkeypatch.undo()
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    assert _differs(undisturbed, monkeypatch, plant, "every batch", plan)


@pytest.mark.parametrize(
    ("plant", "tolerance", "plan"), IN_DRIVERS, ids=lambda one: getattr(one, "__name__", "" if one else "calm")
)
def test_a_mistake_in_the_recovery_is_found(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, plant: Plant, tolerance: str, plan: dict[Moment, str]
) -> None:
    assert not _differs(undisturbed, monkeypatch, nothing, tolerance, plan)
    monkeypatch.undo()
    assert _differs(undisturbed, monkeypatch, plant, tolerance, plan)


def test_what_is_merged_again_shows_without_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    plan = {Moment(1, 0, 2): DIES_AFTER}
    *_, calm = trained_among(monkeypatch, logistic(ASP(), af.MiniBatch()), Troubles(plan))
    assert calm == [300] * BATCHES
    merges_what_is_repeated(monkeypatch)
    *_, twice = trained_among(monkeypatch, logistic(ASP(), af.MiniBatch()), Troubles(plan))
    assert twice[1] > 300


class _DriverDied(BaseException):
    pass


def with_a_driver_lost_between_stages(patch: pytest.MonkeyPatch) -> dict[int, float]:
    """The model of a run whose driver is gone in batch 2, when workers have trained and nobody has the model yet."""
    real = StageRunner._advance
    dead: list[bool] = []

    def advance(self: StageRunner, run: Any, runs: Any, batch: Any, *given: Any, **named: Any) -> bool:
        if run.name == "global" and batch == 2 and not dead:
            dead.append(True)
            raise _DriverDied
        return real(self, run, runs, batch, *given, **named)

    patch.setattr(StageRunner, "_advance", advance)
    patch.setattr(stage_runner, "BATCH_TRIES", 5)
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES - 1):
            try:
                query.batch(rows(batch))
            except _DriverDied:
                query.restart_driver()
        query.batch(rows(BATCHES - 1))
        return model_of(query)


def test_a_driver_that_is_gone_between_the_stages_of_a_batch(undisturbed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_a_driver_lost_between_stages(monkeypatch) == undisturbed[0]
