"""Promises of which no model tells that they are kept: what is sent, how long is waited, who is refused, what is said.
Each with the mistake that its check must notice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.linear_learners import LinearLearner
from afspark.algorithms.model_training import train
from afspark.algorithms.progressive import UNIT, Progress
from afspark.coordinator import model_servers, stage_runner
from afspark.coordinator.model_servers import ModelServers
from afspark.errors import WorkerFailed
from afspark.exchange import model_client
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import BEGIN, Begin, ExchangeFailed
from afspark.exchange.exchange_ticket import ExchangeTicket, RoundKey
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.model_server import ModelServer
from afspark.exchange.model_versions import ModelVersions
from afspark.model.consistency import ASP, BSP, SSP, Consistency
from afspark.model.kernels.plain_arrays import Array
from afspark.model.learner import Learner
from afspark.model.training import Cells, StepFacts
from tests.unit.exchange.step_troubles import DIES_AFTER, Moment, Troubles, trained_among
from tests.unit.exchange.test_planted_in_training import ServerHere
from tests.unit.exchange.test_training import BATCHES, SCHEMA, logistic, rows

SIZE, SECRET = 1000, "s" * 32
KEY = RoundKey(batch=0, attempt=1)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    found = ModelServer(SIZE, host="127.0.0.1", secret=SECRET)
    yield found
    # It waits for the streams that a test has left open, in no hurry.
    threading.Thread(target=found.shutdown, daemon=True).start()


def exchanges(server: ModelServer, workers: int, *, seconds: float = 20.0) -> list[ModelExchange]:
    begin = Begin(
        batch=KEY.batch,
        attempt=KEY.attempt,
        base="",
        workers=list(range(workers)),
        incarnations=[0] * workers,
        consistency="bsp",
        seconds=seconds,
    )
    ServerCalls(server.address, SECRET).begin(begin)
    ticket = ExchangeTicket(addresses=(server.address,), bounds=(0, SIZE), key=KEY, secret=SECRET, seconds=seconds)
    return [ModelExchange(ticket, worker=worker, incarnation=0) for worker in range(workers)]


# --- what is sent -------------------------------------------------------------------------------------------

CELLS, WORKERS, STEPS = 3, 4, 5


def largest_answer(server: ModelServer) -> int:
    """Of workers that push a few cells in every step: the most cells that any of them got back."""
    lengths: list[int] = []

    def work(worker: int, exchange: ModelExchange) -> None:
        exchange.pull()
        chance = np.random.default_rng(worker)
        for _ in range(STEPS):
            index = chance.choice(SIZE, CELLS, replace=False).astype(np.uint32)
            lengths.append(len(exchange.push(Cells(index, np.ones(CELLS)), StepFacts(items=1)).index))
        exchange.finish()

    threads = [threading.Thread(target=work, args=one, daemon=True) for one in enumerate(exchanges(server, WORKERS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(lengths) == WORKERS * STEPS
    return max(lengths)


def test_an_answer_has_no_cells_but_those_that_were_pushed(server: ModelServer) -> None:
    assert CELLS < largest_answer(server) <= WORKERS * CELLS


def test_a_server_that_sends_the_whole_model_is_noticed(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModelVersions.changes
    monkeypatch.setattr(ModelVersions, "changes", lambda self, since, upto: real(self, None, upto))
    assert largest_answer(server) > WORKERS * CELLS


# --- how long is waited -------------------------------------------------------------------------------------


def why_it_gave_up(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a worker hears that waits for one who does not come."""
    monkeypatch.setattr(model_client, "ANSWER_SECONDS", 1.0)
    exchange, _ = exchanges(server, 2, seconds=0.2)
    with pytest.raises(ExchangeFailed) as found:
        exchange.pull()
    return str(found.value)


def test_a_server_says_for_whom_was_waited_too_long_and_what_helps(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = why_it_gave_up(server, monkeypatch)
    assert "worker 0 waited 0.2 s in step 0 for worker 1" in said
    assert "wait_seconds" in said


def test_a_server_that_waits_for_ever_is_noticed(server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = server._actions[BEGIN]
    monkeypatch.setitem(server._actions, BEGIN, lambda told: begin({**told, "seconds": 1e6}))
    assert "waited" not in why_it_gave_up(server, monkeypatch)


class _Slow(LinearLearner):
    """One of its workers takes longer than others wait."""

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
        if threading.current_thread().name.endswith("_0"):
            time.sleep(1.0)
        return super().gradient(model, items)


def test_a_batch_with_steps_that_take_too_long_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    monkeypatch.setattr(stage_runner, "BATCH_TRIES", 2)

    def pipeline(stream: Any) -> Any:
        return train(stream, _Slow(("x", "y")), iteration=40, tolerance=af.MiniBatch(), wait_seconds=0.3)

    def attempt() -> None:
        with testing.run(pipeline, SCHEMA) as query:
            query.batch(rows(0))

    with pytest.raises(WorkerFailed, match=r"waited 0\.3 s in step \d for worker \d; .* wait_seconds"):
        attempt()


# --- who is refused -----------------------------------------------------------------------------------------


def crowded() -> None:
    """Two hosts have a slot each; one is lost, and nobody comes in its place."""
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=3.0), SCHEMA) as query:
        query._cluster.slots = dict.fromkeys(query.hosts, 1)
        query.batch(rows(0))
        lost = query.lose_host(query.homes("local")[1])
        query._cluster.slots = {host: 1 for host in query.hosts if not host.startswith(f"{lost}-")}
        query.batch(rows(1))


def test_workers_that_cannot_be_at_work_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    with pytest.raises(WorkerFailed, match="2 workers of 'local' on host0 train together, and it has 1 slots"):
        crowded()


def test_workers_that_would_wait_for_a_slot_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    monkeypatch.setattr(ModelServers, "_refuse_crowded", lambda self, run: None)
    crowded()


# --- what a lost worker has ---------------------------------------------------------------------------------

THETA = 1.0


def forgotten() -> tuple[float, float]:
    """How much of what it had counted a lost worker has forgotten, in units of its divergence, and what is told."""
    with testing.run(logistic(BSP(), af.Approximate(theta=THETA, items=10)), SCHEMA) as query:
        for batch in range(8):
            query.batch(rows(batch))
        before = {share.worker: Progress.together([share], "progress").items for share in query.shares("local")}
        host = query.homes("local")[1]
        lost = [worker for worker, home in enumerate(query.homes("local")) if home == host]
        query.lose_host(host)
        shares = {share.worker: share for share in query.shares("local")}
        after = {worker: Progress.together([shares[worker]], "progress").items for worker in before}
        assert all(after[worker] == before[worker] for worker in before if worker not in lost)
        told = query.bounds("local")["progress"]
        query.batch(rows(8))
    return max(UNIT * (1 - after[worker] / before[worker]) for worker in lost), told


def test_a_lost_worker_comes_back_within_its_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    off, told = forgotten()
    assert 0 <= off <= told <= THETA


def test_a_worker_that_is_not_backed_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    monkeypatch.setattr(Progress, "divergence", lambda self, backup: 0.0)
    off, _ = forgotten()
    assert off > THETA


# --- what is said -------------------------------------------------------------------------------------------


class _Moody(LinearLearner):
    """Learns something else each time."""

    def gradient(self, model: Array, items: pa.RecordBatch) -> tuple[Cells, StepFacts]:
        gradient, facts = super().gradient(model, items)
        return Cells(gradient.index, gradient.values + 1e-3 * np.random.default_rng().normal(size=self.cells)), facts


def repeated(
    monkeypatch: pytest.MonkeyPatch,
    learner: Learner,
    caplog: pytest.LogCaptureFixture,
    *,
    consistency: Consistency | None = None,
    tolerance: af.Tolerance | None = None,
) -> list[str]:
    """What is said in a run in which a worker dies and repeats its steps."""
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)

    def pipeline(stream: Any) -> Any:
        given = {"iteration": 40, "consistency": consistency, "tolerance": tolerance or af.MiniBatch()}
        return train(stream, learner, **given).writeStream.outputMode("append")

    with caplog.at_level(logging.WARNING, logger="afspark"):
        *_, items = trained_among(monkeypatch, pipeline, Troubles({Moment(1, 0, 2): DIES_AFTER}))
    assert items == [300] * BATCHES
    return [record.getMessage() for record in caplog.records if "learned something else" in record.getMessage()]


def test_a_learner_that_is_not_deterministic_is_told_where_results_should_be_exact(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (said,) = repeated(monkeypatch, _Moody(("x", "y")), caplog)
    assert "Worker 0 of 'local' has repeated its share of batch 1 and learned something else in 3 steps" in said


@pytest.mark.parametrize(
    ("learner", "consistency", "tolerance"),
    [
        (LinearLearner(("x", "y")), BSP(), af.MiniBatch()),
        (_Moody(("x", "y")), ASP(), af.MiniBatch()),
        (_Moody(("x", "y")), BSP(), af.Approximate(theta=1.0)),
    ],
    ids=["deterministic", "as results arrive", "approximate"],
)
def test_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    learner: Learner,
    consistency: Consistency,
    tolerance: af.Tolerance,
) -> None:
    assert not repeated(monkeypatch, learner, caplog, consistency=consistency, tolerance=tolerance)


# --- what is fetched and left open --------------------------------------------------------------------------


def test_what_a_batch_has_made_is_fetched_once_and_no_connection_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)
    fetched: list[Any] = []
    open_calls: set[int] = set()
    begin, close, result = ServerCalls.__init__, ServerCalls.close, ServerCalls.result

    def beginning(self: ServerCalls, address: str, secret: str) -> None:
        begin(self, address, secret)
        open_calls.add(id(self))

    def closing(self: ServerCalls) -> None:
        close(self)
        open_calls.discard(id(self))

    def resulting(self: ServerCalls, key: RoundKey, *, becomes: str) -> Any:
        fetched.append(key)
        return result(self, key, becomes=becomes)

    monkeypatch.setattr(ServerCalls, "__init__", beginning)
    monkeypatch.setattr(ServerCalls, "close", closing)
    monkeypatch.setattr(ServerCalls, "result", resulting)
    with testing.run(logistic(BSP(), af.MiniBatch(), shards=2), SCHEMA) as query:
        for batch in range(2):
            query.batch(rows(batch))
        assert len(fetched) == 2 * 2
        assert query.exchanges()
        query.lose_host(query.homes("global")[0])
        query.batch(rows(2))
    assert not open_calls


# --- short shares -------------------------------------------------------------------------------------------


def model_after(learner: Callable[[], Learner], consistency: Consistency, workers: int) -> np.ndarray:
    def pipeline(stream: Any) -> Any:
        return train(
            stream, learner(), iteration=10_000, consistency=consistency, workers=workers, tolerance=af.MiniBatch()
        )

    with testing.run(pipeline, SCHEMA) as query:
        for batch in range(BATCHES):
            query.batch(rows(batch))
        found = query.results("global").sort_by("index")
    return np.asarray(found["weight"])


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("consistency", [SSP(2), ASP()], ids=str)
@pytest.mark.parametrize("learner", ["item by item", "by a gradient"])
def test_shares_that_are_shorter_than_a_step_lead_nearly_to_the_model_of_rounds(
    monkeypatch: pytest.MonkeyPatch, learner: str, consistency: Consistency, workers: int
) -> None:
    monkeypatch.setattr(model_servers, "ServerProcess", ServerHere)

    def make() -> Learner:
        if learner == "item by item":
            return af.LogisticLearner(af.Features(numeric=("x", "y")))
        return LinearLearner(("x", "y"), rate=3.0)

    in_rounds = model_after(make, BSP(), workers)
    found = model_after(make, consistency, workers)
    assert np.linalg.norm(in_rounds) > 0.2
    assert np.linalg.norm(found - in_rounds) < 0.15 * np.linalg.norm(in_rounds)
