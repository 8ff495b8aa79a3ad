"""Mistakes in how model servers are looked after and in the recovery of those who train: each is planted in the real
code, and a run with failures must differ from an undisturbed one, or fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import afspark as af
from afspark import testing
from afspark.coordinator import model_servers, stage_runner
from afspark.coordinator.model_servers import ModelServers
from afspark.coordinator.stage_runner import StageRunner
from afspark.errors import AfsparkError
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import Opened
from afspark.model.consistency import BSP
from tests.unit.exchange.test_training import (
    EXACT,
    SCHEMA,
    kill_worker,
    logistic,
    lose_host,
    lose_model,
    lose_servers,
    rows,
    trained,
)

pytestmark = pytest.mark.some(2)

Plant = Callable[[pytest.MonkeyPatch], None]
Failure = Callable[[testing.LocalQuery, int], None]


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), EXACT["every batch"]))


def begins_with_zeros_instead_of_the_model(patch: pytest.MonkeyPatch) -> None:
    """A server that has lost the model is told that nobody has learned anything yet."""
    real = ModelServers._begin

    def begin(self: ModelServers, trained: Any, run: Any) -> Any:
        begun = real(self, trained, run)
        return (
            replace(begun, base="")
            if self.__dict__.setdefault("_pids", servers(trained)) != servers(trained)
            else begun
        )

    def servers(trained: Any) -> list[int]:
        return [server.pid for server in trained.servers]

    patch.setattr(ModelServers, "_begin", begin)


def loads_no_values(patch: pytest.MonkeyPatch) -> None:
    """A server is given a model without its cells."""
    real = ServerCalls.load

    def load(self: ServerCalls, base: str, cells: Any, size: int) -> None:
        real(self, base, replace(cells, index=cells.index[:0], values=cells.values[:0]), size)

    patch.setattr(ServerCalls, "load", load)


def dead_servers_not_replaced(patch: pytest.MonkeyPatch) -> None:
    """Whoever was started once is taken to live."""
    real = ModelServers._start

    def start(self: ModelServers, trained: Any) -> None:
        if not trained.servers:
            real(self, trained)

    patch.setattr(ModelServers, "_start", start)


def batch_not_taken_back(patch: pytest.MonkeyPatch) -> None:
    """Rounds are opened anew, and those who have applied the batch in the old ones keep what they have."""
    real = ModelServers.must_take_back

    def must(self: ModelServers, *given: Any) -> bool:
        real(self, *given)
        return False

    patch.setattr(ModelServers, "must_take_back", must)


def same_attempt_again(patch: pytest.MonkeyPatch) -> None:
    """The batch is taken back, and its rounds are not begun anew: abandoned ones stay abandoned."""
    real = ModelServers.must_take_back

    def must(self: ModelServers, run: Any, runs: Any, batch: Any) -> bool:
        trained = self._trained.get(run.name)
        known = trained is not None and trained.batch == batch
        before = trained.attempt if trained is not None else 0
        found = real(self, run, runs, batch)
        if known and trained is not None:
            trained.attempt = before
        return found

    def taken_back(self: ModelServers, name: str, *, everywhere: bool) -> None:
        """The rounds stay as they are."""

    patch.setattr(ModelServers, "must_take_back", must)
    patch.setattr(ModelServers, "taken_back", taken_back)


def version_without_incarnations(patch: pytest.MonkeyPatch) -> None:
    """The model of a server passes for the one that was lost, whatever the global operator was given back."""
    patch.setattr(model_servers, "_version", lambda model, batch: "" if batch == 0 else f"{batch - 1}")


def workers_replay_alone(patch: pytest.MonkeyPatch) -> None:
    """Those who have lost nothing do not go back with the others, and nobody trains with whoever has."""
    real = StageRunner._catch_up

    def catch_up(self: StageRunner, runs: Any, batch: Any) -> bool:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(ModelServers, "active", False)
            return real(self, runs, batch)

    patch.setattr(StageRunner, "_catch_up", catch_up)
    # Whoever finds rounds without the others would call them back.
    patch.setattr(StageRunner, "_all_go_back", lambda self, runs, batch: None)


def any_answer_is_open(patch: pytest.MonkeyPatch) -> None:
    """A server that lacks the model, or has given the rounds up, is taken to have opened them."""
    real = ServerCalls.begin

    def begin(self: ServerCalls, begun: Any) -> Opened:
        real(self, begun)
        return Opened.OPEN

    patch.setattr(ServerCalls, "begin", begin)


def nothing(patch: pytest.MonkeyPatch) -> None:
    """No mistake: what the others are compared with."""


MISTAKES: list[tuple[Plant, str, Failure]] = [
    (begins_with_zeros_instead_of_the_model, "every batch", lose_servers),
    (loads_no_values, "every batch", lose_servers),
    (dead_servers_not_replaced, "every batch", lose_servers),
    (batch_not_taken_back, "every batch", lose_model),
    (same_attempt_again, "every batch", kill_worker),
    (workers_replay_alone, "snapshots", lose_host),
    (any_answer_is_open, "every batch", lose_servers),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("plant", "tolerance", "failure"), MISTAKES, ids=lambda one: getattr(one, "__name__", one))
def test_a_planted_mistake_is_found(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, plant: Plant, tolerance: str, failure: Failure
) -> None:
    assert _differs(undisturbed, monkeypatch, plant, tolerance, failure)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("tolerance", "failure"), sorted({(one[1], one[2]) for one in MISTAKES}, key=lambda one: (one[0], one[1].__name__))
)
def test_without_a_mistake_nothing_is_found(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, tolerance: str, failure: Failure
) -> None:
    assert not _differs(undisturbed, monkeypatch, nothing, tolerance, failure)


def _differs(undisturbed: Any, patch: pytest.MonkeyPatch, plant: Plant, tolerance: str, failure: Failure) -> bool:
    """Whether a run with a mistake and a failure comes to something else, or to no end."""
    plant(patch)
    # Mistakes that keep workers waiting are found soon.
    patch.setattr(stage_runner, "BATCH_TRIES", 4)
    try:
        return bool(trained(logistic(BSP(), EXACT[tolerance], wait_seconds=3.0), failure) != undisturbed)
    except (AfsparkError, AssertionError):
        return True


def _first_loss_after_a_lost_model() -> float:
    """What the first items cost after a model was lost of which there was no backup."""
    with testing.run(logistic(BSP(), af.Approximate(theta=1e6)), SCHEMA) as query:
        for batch in range(3):
            query.batch(rows(batch))
        query.lose_host(query.homes("global")[0])
        query.batch(rows(3))
        told = query.items("global")
    assert told is not None
    return float(told["log_loss"][0].as_py())


def test_training_goes_on_from_what_the_lost_model_came_back_as() -> None:
    assert _first_loss_after_a_lost_model() > 0.4


def test_a_server_whose_model_passes_for_the_lost_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    version_without_incarnations(monkeypatch)
    assert _first_loss_after_a_lost_model() < 0.35
