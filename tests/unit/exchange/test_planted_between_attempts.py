"""Mistakes in what holds attempts at a batch, drivers and those who have ended apart: each is planted in the real code,
and a run with failures must come to another model, or say what it would not say otherwise.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.model_training import LocalTraining
from afspark.coordinator import model_servers, stage_runner
from afspark.coordinator.model_servers import ModelServers
from afspark.coordinator.stage_runner import StageRunner
from afspark.errors import AfsparkError
from afspark.exchange.exchange_messages import ExchangeFailed
from afspark.exchange.exchange_ticket import ExchangeTicket
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.model_server import ModelServer
from afspark.model.consistency import BSP
from afspark.model.training import Cells, StepFacts
from afspark.task import worker
from tests.unit.exchange.test_begun_anew import abandon_rounds
from tests.unit.exchange.test_planted_in_servers import batch_not_taken_back
from tests.unit.exchange.test_planted_in_training import ServerHere, with_a_driver_lost_between_stages
from tests.unit.exchange.test_training import BATCHES, SCHEMA, logistic, model_of, rows, servers_of, trained

Plant = Callable[[pytest.MonkeyPatch], None]
#: The model of a run in which something goes wrong.
Run = Callable[[pytest.MonkeyPatch], dict[int, float]]


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, float]:
    model, _ = trained(logistic(BSP(), af.MiniBatch()))
    return model


@pytest.fixture(autouse=True)
def servers_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    # Mistakes that keep workers waiting are found soon.
    monkeypatch.setattr(stage_runner, "BATCH_TRIES", 4)


# --- mistakes ------------------------------------------------------------------------------------------------


def calls_the_result_as_its_base(patch: pytest.MonkeyPatch) -> None:
    """The model that a batch leaves behind is found by the name of the one that it began with."""
    real = ModelServers._ticket

    def ticket(self: ModelServers, trained: Any, runs: Any, batch: Any) -> Any:
        made = real(self, trained, runs, batch)
        object.__setattr__(made, "becomes", trained.base)
        return made

    patch.setattr(ModelServers, "_ticket", ticket)


def rounds_are_always_open(patch: pytest.MonkeyPatch) -> None:
    """The driver takes rounds to be open that nobody has any more."""
    patch.setattr(ModelServers, "_are_open", lambda self, trained, run: True)


def attempts_are_one(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes from an attempt that is over takes part in the one that is open."""
    patch.setattr(ModelServer, "_batch", lambda self, key: self._batches[key.batch])


def nobody_leaves(patch: pytest.MonkeyPatch) -> None:
    """A worker that cannot go on keeps it to itself."""
    patch.setattr(worker, "leave_exchange", lambda request, why: None)


def leaves_as_soon_as_it_comes(patch: pytest.MonkeyPatch) -> None:
    """A worker says that it cannot go on before anybody knows."""
    real = worker._served

    def served(environment: Any, config: Any, request: Any, *given: Any) -> Any:
        worker.leave_exchange(request, "it may not be able to")
        return real(environment, config, request, *given)

    patch.setattr(worker, "_served", served)


def idle_workers_do_not_come(patch: pytest.MonkeyPatch) -> None:
    """A worker without items in a batch has nothing to say."""
    real = LocalTraining.finish

    def finish(self: LocalTraining, states: Any) -> None:
        if self._rows or self._model is not None:
            real(self, states)

    patch.setattr(LocalTraining, "finish", finish)


def ends_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """A worker at the end of its share does not say so."""

    def finish(self: ModelExchange) -> int:
        self.close()
        return self._step

    patch.setattr(ModelExchange, "finish", finish)


# --- runs ----------------------------------------------------------------------------------------------------


def in_between(patch: pytest.MonkeyPatch, happen: Callable[[testing.LocalQuery], bool]) -> dict[int, float]:
    """A run in which something happens when all have trained in batch 1, and nobody has the model yet; ``happen`` says
    whether the next stage begins all the same.
    """
    real = StageRunner._advance
    happened: list[bool] = []

    def advance(self: StageRunner, run: Any, runs: Any, batch: Any, *given: Any, **named: Any) -> bool:
        if run.name == "global" and batch == 1 and not happened:
            happened.append(True)
            if not happen(query):
                return False
        return real(self, run, runs, batch, *given, **named)

    patch.setattr(StageRunner, "_advance", advance)
    with testing.run(logistic(BSP(), af.MiniBatch(), shards=2, wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            query.batch(rows(batch))
        assert happened
        return model_of(query)


def _lose(query: testing.LocalQuery, *shards: int) -> bool:
    for shard in shards:
        server = servers_of(query)[shard]
        server.close()
        server.lives = False
    return True


def one_server_lost(patch: pytest.MonkeyPatch) -> dict[int, float]:
    """The other one tells its result, and the batch is begun anew all the same."""
    return in_between(patch, lambda query: _lose(query, 1))


def all_servers_lost(patch: pytest.MonkeyPatch) -> dict[int, float]:
    return in_between(patch, lambda query: _lose(query, 0, 1))


def one_goes_on(patch: pytest.MonkeyPatch) -> dict[int, float]:
    """Worker 1 of the first attempt at batch 1 goes on as if it had not ended, when the second one has begun."""
    pull = ModelExchange.pull
    tickets: list[ExchangeTicket] = []

    def pulling(self: ModelExchange) -> Cells:
        if (self._hello.batch, self._hello.worker) == (1, 1):
            tickets.append(self._ticket)
            if len(tickets) == 2:
                older = ModelExchange(tickets[0], worker=1, incarnation=self._hello.incarnation)
                with contextlib.suppress(ExchangeFailed):
                    pull(older)
                    older.push(Cells(np.arange(3, dtype=np.uint32), np.ones(3)), StepFacts(items=40))
        return pull(self)

    def given_up(query: testing.LocalQuery) -> bool:
        abandon_rounds(query)
        return False

    patch.setattr(ModelExchange, "pull", pulling)
    found = in_between(patch, given_up)
    assert len(tickets) == 2
    return found


def one_is_misplaced(patch: pytest.MonkeyPatch) -> dict[int, float]:
    """A task of worker 1 runs on a host where that has no state; nobody waits for it until it is too late."""
    real = StageRunner._stage
    said: list[str] = []

    def stage(self: StageRunner, *given: Any) -> Any:
        reports = real(self, *given)
        said.extend(report.detail for report in reports)
        return reports

    patch.setattr(StageRunner, "_stage", stage)
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            if batch == 1:
                first, second = query.homes("local")
                assert first != second
                query._cluster.astray["reduce", 1] = first
            query.batch(rows(batch))
        assert not query._cluster.astray
        assert any("worker 1 is misplaced" in one for one in said)
        assert not any("waited" in one for one in said)
        return model_of(query)


def few_items(patch: pytest.MonkeyPatch) -> dict[int, float]:
    """Nobody but worker 0 has items in a batch, and the model is that of the others."""
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            query.batch(rows(batch))
            query.batch(rows(batch, count=0))
        return model_of(query)


def calm(patch: pytest.MonkeyPatch) -> dict[int, float]:
    model, _ = trained(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0))
    return model


MISTAKES: list[tuple[Plant, Run]] = [
    (calls_the_result_as_its_base, one_server_lost),
    (rounds_are_always_open, all_servers_lost),
    (batch_not_taken_back, with_a_driver_lost_between_stages),
    (attempts_are_one, one_goes_on),
    (nobody_leaves, one_is_misplaced),
    (leaves_as_soon_as_it_comes, calm),
    (idle_workers_do_not_come, few_items),
    (ends_without_a_word, calm),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("plant", "run"), MISTAKES, ids=lambda one: one.__name__)
def test_a_planted_mistake_is_found(
    undisturbed: dict[int, float], monkeypatch: pytest.MonkeyPatch, plant: Plant, run: Run
) -> None:
    plant(monkeypatch)
    assert _differs(undisturbed, monkeypatch, run)


@pytest.mark.parametrize("run", dict.fromkeys(run for _, run in MISTAKES), ids=lambda one: one.__name__)
def test_without_a_mistake_nothing_is_found(
    undisturbed: dict[int, float], monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    assert run(monkeypatch) == undisturbed


def _differs(undisturbed: dict[int, float], patch: pytest.MonkeyPatch, run: Run) -> bool:
    try:
        return run(patch) != undisturbed
    except (AfsparkError, AssertionError):
        return True
