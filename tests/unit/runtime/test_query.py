"""What a user may ask of a running query, and when."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from afspark.api.query import Query
from afspark.errors import UsageError


class Lock:
    """Stands for the lock of the batches: where the real one would wait for itself for ever, this one says so."""

    def __init__(self) -> None:
        self.held = False

    def acquire(self, timeout: float) -> bool:
        assert not self.held, "a deadlock"
        self.held = True
        return True

    def release(self) -> None:
        self.held = False

    def __enter__(self) -> None:
        self.acquire(0.0)

    def __exit__(self, *error: object) -> None:
        self.release()


class Busy:
    """Stands for the engine and for Spark's query: a batch calls the sink, and nothing else is there to be done."""

    @property
    def receivers(self) -> Busy:
        return self

    @property
    def lease(self) -> Busy:
        return self

    isActive = False
    interval = 1.0
    runs = ()

    def kept(self) -> AbstractContextManager[None]:
        return nullcontext()

    def awaitTermination(self, timeout: float) -> bool:
        return True

    def close(self) -> None:
        pass

    def __init__(self, sink: Callable[[], Any]) -> None:
        self.sink, self.stopped, self.ended = sink, 0, 0

    def run(self, batch: int, frame: object, deliver: object) -> None:
        self.sink()

    def end(self, deliver: object) -> list[Any]:
        self.ended += 1
        return []

    def ready(self) -> list[Any]:
        raise EOFError("asked between two batches")

    def stop(self) -> None:
        self.stopped += 1

    def exception(self) -> None:
        return None


def query_with(sink: Callable[[Query], Any]) -> tuple[Query, Busy]:
    busy = Busy(lambda: sink(query))
    query = Query(None, busy)  # type: ignore[arg-type]
    query._batch_lock = Lock()  # type: ignore[assignment]
    query._note = lambda progress: None  # type: ignore[method-assign]
    query.attach(busy)  # type: ignore[arg-type]
    return query, busy


QUESTIONS: list[Callable[[Query], Any]] = [Query.results, Query.shares, Query.stop, Query.end]


@pytest.mark.parametrize("ask", QUESTIONS, ids=lambda ask: ask.__name__)
def test_a_sink_that_asks_the_query_calling_it_is_refused(ask: Callable[[Query], Any]) -> None:
    """The answer would have to wait for the batch, and the batch for the sink."""
    query, busy = query_with(ask)
    with pytest.raises(UsageError):
        query.run_batch(None, 0)  # type: ignore[arg-type]
    assert isinstance(query.exception(), UsageError)
    assert (busy.stopped, busy.ended) == (0, 0)


def test_after_the_batch_its_thread_may_ask_again() -> None:
    query, busy = query_with(lambda query: None)
    query.run_batch(None, 0)  # type: ignore[arg-type]
    for ask in (query.results, query.shares):
        with pytest.raises(EOFError):
            ask()
    query.end()
    query.stop()
    assert (busy.stopped, busy.ended) == (1, 1)


def test_progress_can_be_asked_for_while_a_batch_ends() -> None:
    query = Query(None, Busy(lambda: None))  # type: ignore[arg-type]

    class Told:
        def to_json(self) -> dict[str, int]:
            query._recent.append(Told())  # type: ignore[arg-type]
            return {"batch": 0}

    query._recent.extend([Told(), Told()])  # type: ignore[list-item]
    assert query.recentProgress == [{"batch": 0}] * 2
