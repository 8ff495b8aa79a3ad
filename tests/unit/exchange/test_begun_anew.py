"""Batches that are begun anew, or replayed, while more goes wrong: nothing counts that was pushed before, and nobody is
waited for in vain.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.coordinator import model_servers, stage_runner
from afspark.coordinator.stage_runner import StageRunner
from afspark.errors import WorkerFailed
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import Leave
from afspark.exchange.model_client import ModelExchange
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.training import Cells, StepFacts
from afspark.sources.chunks import NumberedChunk
from afspark.sources.given_items import PIECES, GivenItems
from tests.unit.exchange.test_planted_in_training import ServerHere
from tests.unit.exchange.test_training import (
    BATCHES,
    SCHEMA,
    logistic,
    model_of,
    rows,
    servers_of,
    trained,
)

SNAPSHOTS = af.BarrierSnapshot(batches=4)


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), af.MiniBatch()))


@pytest.fixture(autouse=True)
def few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is waited for in vain is found out soon."""
    monkeypatch.setattr(stage_runner, "BATCH_TRIES", 5)


def kill_servers(query: testing.LocalQuery) -> None:
    for server in servers_of(query):
        os.kill(server.pid, signal.SIGKILL)
    # Who asks whether they live must not be told so any more.
    for server in servers_of(query):
        os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)


def backwards(piece: pa.RecordBatch) -> pa.RecordBatch:
    return piece.take(pa.array(range(piece.num_rows - 1, -1, -1)))


def test_what_was_learned_from_other_items_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has recomputed a stage, some workers were given other items, and all take the batch back."""
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    real, read = stage_runner.digests_agree, GivenItems.read
    turned: list[bool] = []

    def agree(reports: Any, produced: Any) -> bool:
        turned.append(True)
        return len(turned) > 1 and real(reports, produced)

    def other_way(self: GivenItems, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        return (backwards(piece) if turned else piece for piece in read(self, chunk))

    with monkeypatch.context() as patch:
        patch.setattr(stage_runner, "digests_agree", agree)
        patch.setattr(GivenItems, "read", other_way)
        with testing.run(logistic(BSP(), af.MiniBatch()), SCHEMA) as query:
            query.batch(rows(0))
            found = model_of(query)
    whole = pa.RecordBatch.from_pydict(rows(0), SCHEMA)
    width = -(-whole.num_rows // PIECES)
    pieces = [backwards(whole.slice(first, width)) for first in range(0, whole.num_rows, width)]
    with testing.run(logistic(BSP(), af.MiniBatch()), SCHEMA) as query:
        query.batch(pa.Table.from_batches(pieces).combine_chunks().to_batches()[0])
        assert model_of(query) == found


def abandon_rounds(query: testing.LocalQuery) -> None:
    (found,) = query._engine._stages._servers._trained.values()
    (_, one) = query._engine.operator("local").group.members
    leave = Leave(batch=found.batch, attempt=found.attempt, worker=1, incarnation=one.incarnation, why="given up")
    for server in found.servers:
        ServerCalls(server.address, found.secret).abandon(leave)


@pytest.mark.parametrize("trouble", [kill_servers, abandon_rounds])
def test_a_batch_is_taken_back_until_all_have(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, trouble: Callable[[testing.LocalQuery], None]
) -> None:
    """The rounds are gone when all have trained, and the stages that take the batch back fail as well."""
    advance, roll_back = StageRunner._advance, StageRunner._roll_back
    happened: list[str] = []

    def advancing(self: StageRunner, run: Any, runs: Any, batch: Any, *given: Any, **named: Any) -> bool:
        if run.name == "global" and batch == 1 and not happened:
            happened.append("gone")
            trouble(query)
            return False
        return advance(self, run, runs, batch, *given, **named)

    def rolling_back(self: StageRunner, run: Any, batch: Any) -> bool:
        if len(happened) < 3:
            happened.append(run.name)
            with monkeypatch.context() as patch:
                patch.setattr(self, "_stage", lambda *_: [])
                return roll_back(self, run, batch)
        return roll_back(self, run, batch)

    monkeypatch.setattr(StageRunner, "_advance", advancing)
    monkeypatch.setattr(StageRunner, "_roll_back", rolling_back)
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            query.batch(rows(batch))
        assert (model_of(query), query.results("local").to_pylist()[0]) == undisturbed
    assert happened == ["gone", "local", "global"]


def replayed_with(
    monkeypatch: pytest.MonkeyPatch, trouble: Callable[[testing.LocalQuery], None], *, at: int, between: bool
) -> Any:
    """A run whose batches are replayed from the first on; something happens in one of them."""
    replay, push = StageRunner._replay_stage, ModelExchange.push
    happened: list[bool] = []
    replays: list[int] = []

    def replaying(self: StageRunner, run: Any, runs: Any, batch: Any, given: Any) -> Any:
        replays.append(batch)
        if between and batch == at and run.name == "global" and not happened:
            happened.append(True)
            trouble(query)
        return replay(self, run, runs, batch, given)

    def pushing(self: ModelExchange, cells: Cells, facts: StepFacts) -> Cells:
        if not between and replays and replays[-1] == at and self._step == 2 and not happened:
            happened.append(True)
            trouble(query)
        return push(self, cells, facts)

    monkeypatch.setattr(StageRunner, "_replay_stage", replaying)
    monkeypatch.setattr(ModelExchange, "push", pushing)
    with testing.run(logistic(BSP(), SNAPSHOTS, wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            if batch == 3:
                query.lose_host(query.homes("local")[-1])
            query.batch(rows(batch))
        assert happened
        return model_of(query), query.results("local").to_pylist()[0]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("between", [False, True], ids=["while they train", "between the stages"])
def test_servers_that_are_lost_in_a_replay(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, between: bool, at: int
) -> None:
    assert replayed_with(monkeypatch, kill_servers, at=at, between=between) == undisturbed


@pytest.mark.parametrize("lost", ["local", "global"])
def test_a_driver_and_a_host_are_lost_after_batches_without_a_record(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    def both(query: testing.LocalQuery, batch: int) -> None:
        if batch == 2:
            host = query.homes(lost)[-1]
            query.restart_driver()
            query.lose_host(host)

    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    assert trained(logistic(BSP(), SNAPSHOTS, wait_seconds=3.0), both) == undisturbed


@pytest.mark.parametrize("operator", ["local", "global"])
def test_a_state_that_is_lost_while_a_new_driver_asks_what_was_done(undisturbed: Any, operator: str) -> None:
    """The others have applied the batches that no record covers, and must do so again, together with the one."""

    def both(query: testing.LocalQuery, batch: int) -> None:
        if batch == 2:
            query.restart_driver()
            query.kill_worker(operator, 0, "between", lose_state=True)

    assert trained(logistic(BSP(), SNAPSHOTS, wait_seconds=3.0), both) == undisturbed


@pytest.mark.parametrize("consistency", [SSP(1), ASP()], ids=str)
def test_a_replay_without_rounds_that_comes_to_another_model_is_no_error(
    monkeypatch: pytest.MonkeyPatch, consistency: Consistency
) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    with testing.run(logistic(consistency, SNAPSHOTS, wait_seconds=3.0), SCHEMA) as query:
        for batch in range(BATCHES):
            if batch == 3:
                query.lose_host(query.homes("local")[-1])
            query.batch(rows(batch))
        assert query.results("local").to_pylist()[0]["items"] == 300 * BATCHES
        assert query.bounds("global") == {"model": 0.0}
        assert query.bounds("local") == {"progress": 0.0}


def test_why_a_batch_could_not_be_applied_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(self: ModelExchange, cells: Cells, facts: StepFacts) -> Cells:
        return real(self, Cells(cells.index + np.uint32(5), cells.values), facts)

    real = ModelExchange.push
    monkeypatch.setattr(ModelExchange, "push", ended)
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)

    def attempt() -> None:
        with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
            query.batch(rows(0))

    with pytest.raises(WorkerFailed, match="cell 7 of a shard of 3"):
        attempt()


def test_a_step_that_takes_longer_than_anybody_waits_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It goes on like that for many tries, and nobody would know why the query stands still."""
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    monkeypatch.setattr(stage_runner, "BATCH_TRIES", 2)

    class Slow(af.LinearLearner):
        def gradient(self, model: Any, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
            if items.column("x")[0].as_py() > 1000:
                time.sleep(1.0)
            return super().gradient(model, items)

    def pipeline(stream: Any) -> Any:
        return af.train(stream, Slow(("x", "y")), iteration=40, wait_seconds=0.2)

    items = rows(0)
    items["x"][0] = 2000.0
    with (
        pytest.raises(WorkerFailed, match="in step 1 for worker 0") as raised,
        testing.run(pipeline, SCHEMA) as query,
    ):
        query.batch(items)
    assert "a smaller iteration" in raised.value.message
    assert "'local' begins batch 0 anew. The batch cannot go on: worker 1 waited 0.2 s" in caplog.text
