"""What a user may ask of a running query, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from afspark.api.query import Query
from afspark.coordinator.offsets import newest_of
from afspark.errors import StoreNotWritable, UsageError
from afspark.store import open_store


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

    checkpoint: Any = None
    isActive = False
    interval = 1.0
    runs = ()
    resumed = False

    def kept(self) -> AbstractContextManager[None]:
        return nullcontext()

    def awaitTermination(self, timeout: float) -> bool:
        return self.ends is None or self.ends.wait(0.05)

    def close(self) -> None:
        pass

    def __init__(self, sink: Callable[[], Any], ends: threading.Event | None = None) -> None:
        """``ends``: when it runs no more; None: at once."""
        self.sink, self.stopped, self.ended, self.ends = sink, 0, 0, ends

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

    committed = -1
    """The last batch that was applied."""


def query_with(sink: Callable[[Query], Any], ends: threading.Event | None = None) -> tuple[Query, Busy]:
    busy = Busy(lambda: sink(query), ends)
    query = Query(None, busy)  # type: ignore[arg-type]
    query._batch_lock = Lock()  # type: ignore[assignment]
    query._note = lambda progress: None  # type: ignore[method-assign]
    query.attach(busy)  # type: ignore[arg-type]
    return query, busy


QUESTIONS: list[Callable[[Query], Any]] = [Query.results, Query.shares, Query.stop, Query.end, Query.release]


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


def test_a_batch_that_spark_begins_while_the_query_is_stopped_is_no_failure() -> None:
    query, busy = query_with(lambda query: None)
    query.stop()
    with pytest.raises(RuntimeError, match="stopping"):
        query.run_batch(None, 0)  # type: ignore[arg-type]
    busy.exception = lambda: StreamingQueryException("the batch was refused")  # type: ignore[method-assign,assignment]
    assert query.exception() is None


def test_a_stop_waits_until_spark_has_committed_the_batch_that_was_at_work(tmp_path: Path) -> None:
    """Spark writes its commit after the call: a stop in between would make it run the batch again, and leave it to the
    next start to make what the last snapshot lacks.
    """
    query, busy = query_with(lambda query: None)
    busy.checkpoint, busy.isActive, busy.committed = open_store(tmp_path), True, 3
    seen: list[int | None] = []
    busy.stop = lambda: seen.append(newest_of(busy.checkpoint, "commits"))  # type: ignore[method-assign]
    commit = threading.Timer(0.2, lambda: busy.checkpoint.put("commits/3", b"v1"))
    commit.start()
    query.stop()
    commit.join()
    assert seen == [3]


def test_progress_can_be_asked_for_while_a_batch_ends() -> None:
    query = Query(None, Busy(lambda: None))  # type: ignore[arg-type]

    class Told:
        def to_json(self) -> dict[str, int]:
            query._recent.append(Told())  # type: ignore[arg-type]
            return {"batch": 0}

    query._recent.extend([Told(), Told()])  # type: ignore[list-item]
    assert query.recentProgress == [{"batch": 0}] * 2


class Ending(Busy):
    """A query that has run batches and ends; ``asked``: how often a last snapshot was begun."""

    runs = ("one",)  # type: ignore[assignment]
    stopped_cluster = SimpleNamespace(stopped=True)

    def __init__(self, failure: Exception | None) -> None:
        super().__init__(lambda: None)
        self.failure, self.asked = failure, 0

    @property
    def cluster(self) -> SimpleNamespace:
        self.asked += 1
        return self.stopped_cluster

    def awaitTermination(self, timeout: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return True


@pytest.mark.parametrize("stopping", [False, True], ids=["by itself", "stopped"])
@pytest.mark.parametrize("where", ["nowhere", "in Spark", "in a batch"])
def test_only_an_orderly_end_takes_a_last_snapshot(where: str, stopping: bool) -> None:
    """A batch that finds its query stopping fails in Spark: that is how it is stopped."""
    ending = Ending(None if where == "nowhere" else StreamingQueryException("the source is gone"))
    query = Query(None, ending)  # type: ignore[arg-type]
    query._stopping = stopping
    query._failure = ValueError("the sink is gone") if where == "in a batch" else None
    query.attach(ending)  # type: ignore[arg-type]
    query._await_end()
    assert ending.asked == (where == "nowhere" or (where == "in Spark" and stopping))


class Quiet(Busy):
    """A query that is idle when it is looked at for the first time, and has ended at the second look."""

    runs: Any = ("an operator",)
    store: Any = SimpleNamespace(has=lambda name: False)

    def __init__(self, record: Callable[[], Any]) -> None:
        super().__init__(lambda: None)
        self.record, self.looks = record, 0

    @property
    def commits(self) -> Any:
        return SimpleNamespace(go_on_at_rest=self.record)

    @property
    def log(self) -> Any:
        return SimpleNamespace(refuse_if_superseded=lambda: None)

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(stopped=True)

    def awaitTermination(self, timeout: float) -> bool:
        self.looks += 1
        return self.looks > 1


def watched(record: Callable[[Query], Any]) -> tuple[Query, Quiet]:
    quiet = Quiet(lambda: record(query))
    query = Query(None, quiet)  # type: ignore[arg-type]
    query.attach(quiet)  # type: ignore[arg-type]
    query._await_end()
    return query, quiet


def test_an_idle_query_has_its_last_batch_recorded_between_two_batches() -> None:
    held: list[bool] = []
    query, quiet = watched(lambda query: held.append(query._batch_lock.locked()))
    assert held == [True] and query.exception() is None and quiet.stopped == 0


def test_a_query_that_cannot_record_its_last_batch_while_it_is_idle_fails() -> None:
    def refuse(query: Query) -> None:
        raise StoreNotWritable("no room")

    query, quiet = watched(refuse)
    assert isinstance(query.exception(), StoreNotWritable) and quiet.stopped == 1
