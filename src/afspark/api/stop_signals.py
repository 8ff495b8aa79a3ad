"""Ctrl-C and SIGTERM to a script that waits for its query: the query is stopped in an orderly way before they act."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from afspark.cluster.spark.jvm_signals import may_be_echo

Handler = Callable[[int, FrameType | None], Any]

STOPS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def heeding(handler: Handler, numbers: Iterable[signal.Signals] = STOPS) -> Iterator[None]:
    """Signals of these ``numbers`` go to ``handler`` in the block; only a main thread can take signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, one in before.items():
            signal.signal(number, one)


class OrderlyStop:
    """Calls ``stop`` in a thread of its own at the first signal, while whoever waits goes on waiting; a second signal
    is a KeyboardInterrupt at once. What `spark-submit` hands on of the first one is no second.
    """

    knows_echoes = True

    def __init__(self, stop: Callable[[], None], *, is_echo: Callable[[float], bool] = may_be_echo) -> None:
        self._stop, self._is_echo = stop, is_echo
        self._heard = 0.0
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            if number == self.signal and self._is_echo(time.monotonic() - self._heard):
                return
            raise KeyboardInterrupt
        self.signal, self._heard = number, time.monotonic()
        self._thread = threading.Thread(target=self._run, name="afspark-stop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._stop()
        except BaseException as error:  # noqa: BLE001 (whoever waits raises it)
            self._failure = error

    def act(self) -> None:
        """After a signal: once the query has stopped, KeyboardInterrupt, or SystemExit as SIGTERM would have had it."""
        if self.signal is None or self._thread is None:
            return
        self._thread.join()
        end = KeyboardInterrupt() if self.signal == signal.SIGINT else SystemExit(128 + self.signal)
        raise end from self._failure


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM call ``stop``, and act when that is over. A handler that the user has set stays."""
    request = OrderlyStop(stop)
    with heeding(request, [number for number in STOPS if _is_nobodys(signal.getsignal(number))]):
        try:
            yield
        except Exception:
            # What was waited for may end with an error because it is being stopped.
            request.act()
            raise
        request.act()


def _is_nobodys(handler: Any) -> bool:
    """Whether the user has not set it: pyspark's would cancel the jobs of the batch at work."""
    usual = (signal.SIG_DFL, signal.default_int_handler)
    return handler in usual or str(getattr(handler, "__module__", "")).startswith("pyspark.")
