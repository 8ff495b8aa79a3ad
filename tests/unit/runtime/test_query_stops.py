"""How a script and its query are stopped: by signals, with a flush or without."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from afspark.api import query as queries
from afspark.api.stop_signals import OrderlyStop, stopped_by_signals
from afspark.coordinator.run_options import RunOptions
from afspark.errors import UsageError
from tests.unit.runtime.test_query import query_with


def asked_to_stop(*numbers: signal.Signals, stop: Callable[[], Any], then: Callable[[], Any]) -> None:
    """A script that waits for its query gets signals meanwhile."""
    with stopped_by_signals(stop):
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.05)
        then()


def fail() -> None:
    raise RuntimeError("Spark's query is being stopped")


def waits_until(over: threading.Event) -> None:
    deadline = time.monotonic() + 10
    while not over.is_set():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_stops_the_query_before_it_ends_the_script(number: signal.Signals, ends: type[BaseException]) -> None:
    stopped = threading.Event()
    before = signal.getsignal(number)
    with pytest.raises(ends) as caught:
        asked_to_stop(number, stop=stopped.set, then=partial(waits_until, stopped))
    assert stopped.is_set() and signal.getsignal(number) is before
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 128 + signal.SIGTERM


def test_what_ends_with_an_error_because_it_is_stopped_ends_by_the_signal() -> None:
    with pytest.raises(SystemExit):
        asked_to_stop(signal.SIGTERM, stop=lambda: None, then=fail)


def test_a_second_signal_does_not_wait() -> None:
    forever = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        asked_to_stop(signal.SIGTERM, signal.SIGTERM, stop=forever.wait, then=forever.wait)
    forever.set()


def test_what_spark_submit_hands_on_of_a_signal_is_no_second_one() -> None:
    forever = threading.Event()
    request = OrderlyStop(forever.wait, is_echo=lambda seconds: seconds < 60)
    request(signal.SIGTERM, None)
    request(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        request(signal.SIGINT, None)
    late = OrderlyStop(forever.wait, is_echo=lambda seconds: False)
    late(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        late(signal.SIGTERM, None)
    forever.set()


def test_a_handler_of_the_users_own_stays() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with stopped_by_signals(lambda: pytest.fail("not asked for")):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


@pytest.mark.parametrize("flush", [True, False])
def test_a_stop_flushes_unless_it_is_told_not_to(flush: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Any] = []
    monkeypatch.setattr(queries, "take_last_snapshot", flushed.append)
    ended = threading.Event()
    query, busy = query_with(lambda query: None, ends=ended)
    busy.resumed = True
    busy.stop = ended.set  # type: ignore[method-assign]
    query.stop(flush=flush)
    assert flushed == [busy] * flush


def test_the_limit_of_a_flush_is_a_number_of_seconds() -> None:
    with pytest.raises(UsageError, match="flushSeconds"):
        RunOptions(checkpoint="anywhere", flush_seconds=-1.0)
