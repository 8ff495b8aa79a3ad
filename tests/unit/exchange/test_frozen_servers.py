"""A model server that is stopped keeps its connections open and says nothing: nobody waits for it for ever, and another
one takes its place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import afspark as af
from afspark import testing
from afspark.algorithms.features import Features
from afspark.algorithms.linear_learners import LogisticLearner
from afspark.algorithms.model_training import train
from afspark.cluster.local.local_cluster import LocalCluster
from afspark.coordinator.hosted_server import HostedServer
from afspark.coordinator.stage_runner import StageRunner
from afspark.exchange import driver_calls, model_client, server_process
from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import Begin, ExchangeFailed
from afspark.exchange.exchange_ticket import ExchangeTicket, RoundKey
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.server_process import ServerProcess, kill_alone, start_alone
from afspark.model.consistency import ASP, BSP
from afspark.model.training import Cells, StepFacts
from tests.unit.exchange.step_troubles import Moment, Troubles, trained_among
from tests.unit.exchange.test_training import BATCHES, EXACT, SCHEMA, logistic, model_of, rows, servers_of, trained

SECRET, HOST = "s" * 32, "127.0.0.1"
FROZEN = "a server is stopped"


@pytest.fixture(scope="module")
def undisturbed() -> Any:
    return trained(logistic(BSP(), af.MiniBatch()))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for half a minute."""
    for module in (model_client, driver_calls):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(driver_calls, "PROMPT_SECONDS", 2.0)
    monkeypatch.setattr(server_process, "_STOP_SECONDS", 1.0)


@dataclass
class Freezer:
    """Stops servers, and ends those that nobody else has ended."""

    pids: list[int] = field(default_factory=list)

    def stop(self, pid: int) -> None:
        self.pids.append(pid)
        os.kill(pid, signal.SIGSTOP)
        # Threads go on until one of them has heard of it.
        deadline = time.monotonic() + 20
        while {_state(f"{pid}/task/{thread}") for thread in os.listdir(f"/proc/{pid}/task")} != {"T"}:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def left(self, seconds: float = 0.0) -> list[int]:
        """Those that were stopped and still are there after so many seconds: a killed one needs a moment to end."""
        deadline = time.monotonic() + seconds
        while found := [pid for pid in self.pids if _state(pid) not in ("", "Z")]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return found


def _state(process: int | str) -> str:
    try:
        with open(f"/proc/{process}/stat") as told:
            return told.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture
def freezer() -> Iterator[Freezer]:
    found = Freezer()
    yield found
    for pid in found.left():
        os.kill(pid, signal.SIGKILL)


@dataclass
class Stopped(Troubles):
    freezer: Freezer = field(default_factory=Freezer)

    def _strike(self, kind: str) -> None:
        assert kind == FROZEN and self.query is not None
        self.freezer.stop(servers_of(self.query)[-1].pid)


@pytest.mark.parametrize(
    ("tolerance", "shards"), [("every batch", 1), pytest.param("snapshots", 2, marks=pytest.mark.thorough)]
)
def test_a_server_that_is_stopped_at_a_step_costs_the_batch_and_nothing_else(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, freezer: Freezer, tolerance: str, shards: int
) -> None:
    troubles = Stopped({Moment(1, 0, 1): FROZEN, Moment(3, 1, 2): FROZEN}, freezer=freezer)
    pipeline = logistic(BSP(), EXACT[tolerance], shards=shards, wait_seconds=1.0)
    model, told, _ = trained_among(monkeypatch, pipeline, troubles)
    assert len(set(freezer.pids)) == 2
    assert (model, told) == undisturbed
    assert not freezer.left(20), "whoever does not answer is ended"


def test_without_rounds_every_item_is_merged_once(monkeypatch: pytest.MonkeyPatch, freezer: Freezer) -> None:
    troubles = Stopped({Moment(1, 0, 1): FROZEN}, freezer=freezer)
    _, told, items = trained_among(monkeypatch, logistic(ASP(), af.MiniBatch(), wait_seconds=1.0), troubles)
    assert items == [300] * BATCHES
    assert told["items"] == 300 * BATCHES


def test_a_server_that_is_stopped_between_batches_or_stages(
    undisturbed: Any, monkeypatch: pytest.MonkeyPatch, freezer: Freezer
) -> None:
    advance = StageRunner._advance

    def advancing(self: StageRunner, run: Any, runs: Any, batch: Any, *given: Any, **named: Any) -> bool:
        if run.name == "global" and batch == 2 and len(freezer.pids) == 1:
            freezer.stop(servers_of(query)[0].pid)
        return advance(self, run, runs, batch, *given, **named)

    monkeypatch.setattr(StageRunner, "_advance", advancing)
    with testing.run(logistic(BSP(), af.MiniBatch(), wait_seconds=1.0), SCHEMA) as query:
        for batch in range(BATCHES):
            if batch == 1:
                freezer.stop(servers_of(query)[0].pid)
            query.batch(rows(batch))
        assert (model_of(query), query.results("local").to_pylist()[0]) == undisturbed
    assert len(set(freezer.pids)) == 2
    assert not freezer.left(20)


def test_a_query_ends_although_its_server_is_stopped(freezer: Freezer) -> None:
    with testing.run(logistic(BSP(), af.MiniBatch()), SCHEMA) as query:
        query.batch(rows(0))
        freezer.stop(servers_of(query)[0].pid)
    assert not freezer.left(20)


def _pulled(server: ServerProcess) -> ModelExchange:
    """An exchange with a model; only from now on nobody has patience."""
    key = RoundKey(batch=0, attempt=1)
    begin = Begin(**key.to_json(), base="", workers=[0], incarnations=[0], consistency="bsp", seconds=0.5)
    ticket = ExchangeTicket(addresses=(server.address,), bounds=(0, 10**6), key=key, secret=SECRET, seconds=0.5)
    exchange = ModelExchange(ticket, worker=0, incarnation=0)
    with pytest.MonkeyPatch.context() as patch:
        for module in (model_client, driver_calls):
            patch.setattr(module, "ANSWER_SECONDS", 60.0)
        ServerCalls(server.address, SECRET).begin(begin)
        exchange.pull()
    return exchange


@pytest.mark.parametrize("cells", [1, 10**6], ids=["a little", "more than is buffered"])
def test_whoever_pushes_to_a_stopped_server_gives_up(freezer: Freezer, cells: int) -> None:
    server = ServerProcess(10**6, host=HOST, secret=SECRET)
    exchange = _pulled(server)
    freezer.stop(server.pid)
    began = time.monotonic()
    with pytest.raises(ExchangeFailed, match=r"has said nothing for \d s"):
        exchange.push(Cells(np.arange(cells, dtype=np.uint32), np.ones(cells)), StepFacts(items=1))
    assert 3.0 < time.monotonic() - began < 40
    server.give_up()
    assert not server.lives


def test_whoever_ends_at_a_stopped_server_gives_up(freezer: Freezer) -> None:
    server = ServerProcess(10**6, host=HOST, secret=SECRET)
    exchange = _pulled(server)
    freezer.stop(server.pid)
    exchange.close()
    with pytest.raises(ExchangeFailed, match="is not there"):
        ServerCalls(server.address, SECRET).ping()
    server.give_up()


def test_a_server_on_the_host_of_an_executor_is_ended_there(freezer: Freezer) -> None:
    cluster = LocalCluster({HOST: 1})
    server = HostedServer(cluster, HOST, 10, secret=SECRET)
    assert server.lives
    freezer.stop(server.pid)
    assert not server.lives
    server.give_up()
    assert not freezer.left(20)
    server.close()


def test_servers_on_hosts_of_executors_are_replaced(undisturbed: Any, freezer: Freezer) -> None:
    def pipeline(stream: Any) -> Any:
        return train(
            stream,
            LogisticLearner(Features(numeric=("x", "y"))),
            iteration=40,
            tolerance=af.MiniBatch(),
            wait_seconds=1.0,
            servers="executors",
        )

    with testing.run(pipeline, SCHEMA) as query:
        query._cluster.slots = {HOST: 2}
        for batch in range(BATCHES):
            if batch == 2:
                freezer.stop(servers_of(query)[0].pid)
            query.batch(rows(batch))
        assert servers_of(query)[0].pid not in freezer.pids
        assert (model_of(query), query.results("local").to_pylist()[0]) == undisturbed
    assert len(freezer.pids) == 1
    assert not freezer.left(20)


def test_a_process_that_is_no_server_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        kill_alone(other.pid)
        assert other.stdin is not None
        other.stdin.close()
        assert other.wait(20) == 1, "it has ended by itself"
    _, pid = start_alone(10, host=HOST, secret=SECRET)
    kill_alone(pid)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
