"""What `Query.release` removes, and when it may."""

from __future__ import annotations

import shutil
import threading
from typing import Any

import pytest

import afspark as af
from afspark import testing
from afspark.api import query as queries
from afspark.coordinator.releasing import release_states
from afspark.errors import AnotherDriver, UsageError
from tests.unit.runtime.test_query import query_with
from tests.unit.test_testing import LINES, Counts, counted, lines, words


def counting(stream: af.Stream) -> Any:
    return stream.map(words).apply(Counts(), name="counts", workers=2)


def states(query: testing.LocalQuery) -> list[str]:
    return sorted(str(place.relative_to(query._segments)) for place in query._segments.glob("*/*/counts-*"))


@pytest.mark.parametrize("idle", [False, True], ids=["", "started, and no batch came"])
def test_all_states_of_a_query_are_removed(idle: bool) -> None:
    with testing.run(counting, LINES) as query:
        query.batch(lines("to be or", "not to be"))
        if idle:
            query.restart_driver()
            assert not query._engine.runs
        # A host that was away is back with what it had.
        shutil.copytree(query._segments / query.hosts[0], query._segments / query.hosts[1], dirs_exist_ok=True)
        assert len(states(query)) > 2
        release_states(query._engine)
        assert states(query) == []
        query.batch(lines("to be"))
        assert counted(query.results()) == {"to": 3, "be": 3, "or": 1, "not": 1}
        assert query.bounds() == {"counts": 0.0}


def test_what_is_another_drivers_by_now_is_left_alone() -> None:
    with testing.run(counting, LINES) as query:
        query.batch(lines("to be"))
        former = query._engine
        query.restart_driver()
        query.batch(lines("or not"))
        with pytest.raises(AnotherDriver):
            release_states(former)
        assert len(states(query)) == 2


def test_a_query_that_runs_keeps_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it every worker would count as lost."""
    released: list[Any] = []
    monkeypatch.setattr(queries, "release_states", released.append)
    query, busy = query_with(lambda query: None)
    busy.isActive = True
    with pytest.raises(UsageError, match="still running"):
        query.release()
    busy.isActive = False
    query.release()
    assert released == [busy]


def test_what_is_being_flushed_is_not_removed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's query is over, and what its workers have is on its way to the store."""
    order: list[str] = []
    monkeypatch.setattr(queries, "take_last_snapshot", lambda engine: order.append("flushed"))
    monkeypatch.setattr(queries, "release_states", lambda engine: order.append("released"))
    over, going_on = threading.Event(), threading.Event()
    over.set()
    monkeypatch.setattr(queries.Query, "_keep_commit", lambda query: going_on.wait(10))
    query, busy = query_with(lambda query: None, ends=over)
    busy.resumed = True
    threading.Timer(0.1, going_on.set).start()
    query.release()
    assert order == ["flushed", "released"]
