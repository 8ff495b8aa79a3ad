"""A model server and workers in threads: what is pulled and pushed over Flight is what rounds make of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import flight

from afspark.exchange.driver_calls import ServerCalls
from afspark.exchange.exchange_messages import Begin, ExchangeFailed, Leave, Opened
from afspark.exchange.exchange_ticket import ExchangeTicket, RoundKey
from afspark.exchange.model_client import ModelExchange
from afspark.exchange.model_server import ModelServer
from afspark.exchange.server_process import start_alone
from afspark.model.training import Cells, StepFacts

SIZE, SECRET = 10, "s" * 32
KEY = RoundKey(batch=4, attempt=1)


@pytest.fixture(params=[1, 3])
def servers(request: pytest.FixtureRequest) -> Iterator[list[ModelServer]]:
    bounds = np.linspace(0, SIZE, request.param + 1).astype(int)
    found = [ModelServer(int(size), host="127.0.0.1", secret=SECRET) for size in np.diff(bounds)]
    yield found
    for server in found:
        # It waits for the streams that a test has left open, in no hurry.
        threading.Thread(target=server.shutdown, daemon=True).start()


def ticket(servers: list[ModelServer]) -> ExchangeTicket:
    bounds = np.cumsum([0, *(server.size for server in servers)])
    return ExchangeTicket(
        addresses=tuple(server.address for server in servers), bounds=tuple(map(int, bounds)), key=KEY, secret=SECRET
    )


def opened(
    servers: list[ModelServer], workers: int, *, consistency: str = "bsp", seconds: float = 10.0
) -> list[ServerCalls]:
    calls = [ServerCalls(server.address, SECRET) for server in servers]
    bounds = ticket(servers).bounds
    for one, server, first in zip(calls, servers, bounds, strict=False):
        begin = Begin(
            batch=KEY.batch,
            attempt=KEY.attempt,
            base="b",
            workers=list(range(workers)),
            incarnations=[1] * workers,
            consistency=consistency,
            seconds=seconds,
        )
        assert one.begin(begin) is Opened.LACKS_BASE
        one.load("b", Cells.whole(np.arange(first, first + server.size, dtype=float)), server.size)
        assert one.begin(begin) is Opened.OPEN
    return calls


def train(servers: list[ModelServer], worker: int, steps: int, models: dict[int, np.ndarray]) -> None:
    model = np.full(SIZE, np.nan)
    exchange = ModelExchange(ticket(servers), worker=worker, incarnation=1)
    cells = exchange.pull()
    model[cells.index] = cells.values
    for step in range(steps):
        index = np.array([worker, 9 - step], np.uint32)
        cells = exchange.push(Cells(index, model[index] + 1.0), StepFacts(items=5, loss=0.5))
        model[cells.index] = cells.values
    assert exchange.finish() == steps
    models[worker] = model


def all_train(servers: list[ModelServer], steps: list[int]) -> dict[int, np.ndarray]:
    models: dict[int, np.ndarray] = {}
    threads = [
        threading.Thread(target=train, args=(servers, worker, count, models)) for worker, count in enumerate(steps)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(models) == len(steps)
    return models


def expected(steps: list[int]) -> np.ndarray:
    model = np.arange(SIZE, dtype=float)
    for step in range(max(steps)):
        taking = [worker for worker, count in enumerate(steps) if count > step]
        before = model.copy()
        for worker in taking:
            for cell in (worker, 9 - step):
                model[cell] += 5 / (5 * len(taking)) * (before[cell] + 1.0)
    return model


def test_workers_train_one_model_in_rounds(servers: list[ModelServer]) -> None:
    calls = opened(servers, 3)
    models = all_train(servers, [3, 2, 3])
    np.testing.assert_array_equal(models[0], expected([3, 2, 3]))
    results = [one.result(KEY, becomes="c") for one in calls]
    assert all(sum(facts["items"] for _, facts, _ in found["merges"]) == 5 * 8 for found in results)
    changed = np.concatenate(
        [first + one.changes(KEY).index for one, first in zip(calls, ticket(servers).bounds, strict=False)]
    )
    assert set(changed) == {0, 1, 2, 7, 8, 9}
    assert len(calls[0].events(KEY)["pulls"]) == 3 + 8


def test_a_worker_that_begins_again_gets_the_same_answers(servers: list[ModelServer]) -> None:
    opened(servers, 1)
    models: dict[int, np.ndarray] = {}
    train(servers, 0, 3, models)
    first = models.pop(0)
    train(servers, 0, 3, models)
    np.testing.assert_array_equal(models[0], first)


def test_whoever_waits_too_long_is_told_for_whom(servers: list[ModelServer]) -> None:
    opened(servers, 2, seconds=0.2)
    exchange = ModelExchange(ticket(servers), worker=0, incarnation=1)
    with pytest.raises(ExchangeFailed, match=r"waited 0\.2 s in step 0 for worker 1"):
        exchange.pull()


def test_another_attempt_and_a_server_that_is_gone_are_told(servers: list[ModelServer]) -> None:
    calls = opened(servers, 1)
    exchange = ModelExchange(ticket(servers), worker=0, incarnation=1)
    exchange.pull()
    exchange.close()
    for one in calls:
        assert one.begin(
            Begin(batch=4, attempt=2, base="b", workers=[0], incarnations=[1], consistency="asp", seconds=5.0)
        )
    with pytest.raises(ExchangeFailed, match=r"attempt 1|is not there"):
        ModelExchange(ticket(servers), worker=0, incarnation=1).pull()
    address = ExchangeTicket(addresses=("grpc://127.0.0.1:1",), bounds=(0, SIZE), key=KEY, secret=SECRET)
    with pytest.raises(ExchangeFailed, match="is not there"):
        ModelExchange(address, worker=0, incarnation=1).pull()
    wrong = ExchangeTicket(addresses=(servers[0].address,), bounds=(0, SIZE), key=KEY, secret="")
    with pytest.raises(ExchangeFailed, match="is not there"):
        ModelExchange(wrong, worker=0, incarnation=1).pull()


def test_what_a_lost_incarnation_says_counts_for_nothing(servers: list[ModelServer]) -> None:
    calls = opened(servers, 1, consistency="asp")
    lost = ModelExchange(ticket(servers), worker=0, incarnation=1)
    lost.pull()
    found = ModelExchange(ticket(servers), worker=0, incarnation=2)
    found.pull()
    with pytest.raises(ExchangeFailed, match="incarnation 1 of worker 0 is lost"):
        lost.push(Cells(np.array([1], np.uint32), np.array([5.0])), StepFacts(items=5))
    with pytest.raises(ExchangeFailed, match="is lost"):
        ModelExchange(ticket(servers), worker=0, incarnation=1).pull()
    for one in calls:
        one.abandon(Leave(batch=KEY.batch, attempt=KEY.attempt, worker=0, incarnation=1, why="lost"))
    found.push(Cells(np.array([1], np.uint32), np.array([1.0])), StepFacts(items=5))
    assert found.finish() == 1
    assert [sum(facts["items"] for _, facts, _ in one.result(KEY, becomes="c")["merges"]) for one in calls] == [
        5
    ] * len(calls)


def test_a_model_is_given_to_nobody_before_all_have_ended(servers: list[ModelServer]) -> None:
    calls = opened(servers, 1)
    exchange = ModelExchange(ticket(servers), worker=0, incarnation=1)
    exchange.pull()
    exchange.push(Cells(np.array([1], np.uint32), np.array([1.0])), StepFacts(items=5))
    assert [one.result(KEY, becomes="c") for one in calls] == [{"open": True}] * len(calls)
    exchange.finish()
    assert all(len(one.result(KEY, becomes="c")["merges"]) == 1 for one in calls)


def test_who_was_declared_lost_is_refused_before_anybody_has_its_place(servers: list[ModelServer]) -> None:
    calls = opened(servers, 1, consistency="asp")
    lost = ModelExchange(ticket(servers), worker=0, incarnation=1)
    lost.pull()
    for one in calls:
        told = Begin(batch=4, attempt=1, base="b", workers=[0], incarnations=[2], consistency="asp", seconds=5.0)
        assert one.begin(told) is Opened.OPEN
    with pytest.raises(ExchangeFailed, match="incarnation 1 of worker 0 is lost"):
        lost.push(Cells(np.array([1], np.uint32), np.array([5.0])), StepFacts(items=5))


@pytest.mark.parametrize(("consistency", "ahead"), [("bsp", 1), ("ssp:0", 1), ("ssp:2", 3)])
def test_whoever_is_as_far_ahead_as_it_may_waits_for_the_others(
    servers: list[ModelServer], consistency: str, ahead: int
) -> None:
    opened(servers, 2, consistency=consistency, seconds=0.3)
    fast, slow = (ModelExchange(ticket(servers), worker=worker, incarnation=1) for worker in (0, 1))
    other = threading.Thread(target=slow.pull)
    other.start()
    fast.pull()
    other.join()
    learned = Cells(np.array([1], np.uint32), np.array([1.0])), StepFacts(items=5)
    for _ in range(ahead - 1):
        fast.push(*learned)
    with pytest.raises(ExchangeFailed, match=rf"waited 0\.3 s in step {ahead} for worker 1"):
        fast.push(*learned)
    slow.close()


def test_a_server_of_its_own_ends_when_it_is_told_or_when_nobody_calls() -> None:
    told, _ = start_alone(SIZE, host="127.0.0.1", secret=SECRET)
    forgotten, _ = start_alone(SIZE, host="127.0.0.1", secret=SECRET, lease=0.2)
    ServerCalls(told, SECRET).ping()
    ServerCalls(told, SECRET).end()
    for address in (told, forgotten):
        deadline = time.monotonic() + 20
        while _is_there(address):
            assert time.monotonic() < deadline
            time.sleep(0.3)


def _is_there(address: str) -> bool:
    try:
        flight.connect(address).wait_for_available(1)
    except (pa.ArrowException, OSError):
        return False
    return True
