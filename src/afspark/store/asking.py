"""Requests that another thread carries out, so that whoever asks need not wait for ever for an answer.

Nothing ends a request that hangs. Once it is given up its thread is left behind, and goes no further than to the end of
what it hangs in: `answered` stops it there.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from afspark.errors import StoreError

T = TypeVar("T")

#: A process that was stopped for a while has waited for one part at most: nobody could answer meanwhile.
_PARTS = 10
_LONGEST_SECONDS = 1e6

_at_work: ContextVar[Request[Any] | None] = ContextVar("request", default=None)


def answered() -> None:
    """For whoever carries out a request: part of it was answered. `StoreError` if it was given up meanwhile: somebody
    else may have written since, and nothing may be put in the place of that.
    """
    request = _at_work.get()
    if request is not None:
        request.answers += 1
        if request.given_up:
            raise StoreError("Nobody waits for this request any more.")


class Request(Generic[T]):
    """One request, begun at once. ``given_up``: nobody waits for it any more."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job, self._context = job, copy_context()
        self._done = threading.Event()
        self.answers = 0
        self.given_up = False
        self._result: T
        self._failure: BaseException | None = None
        _hand().given.put(self)

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, whatever became of it."""
        return self._done.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended; False once so many seconds have passed without any answer."""
        part = min(seconds, _LONGEST_SECONDS) / _PARTS
        answers, quiet = self.answers, 0
        while quiet < _PARTS:
            if self._done.wait(part):
                return True
            quiet, answers = (quiet + 1 if answers == self.answers else 0), self.answers
        return False

    def result(self) -> T:
        """What came of it, once it has ended; raises what it has failed with."""
        try:
            if self._failure is not None:
                raise self._failure
            return self._result
        finally:
            # The failure holds this frame, which must not hold it in turn.
            del self

    def carry_out(self) -> None:
        try:
            self._result = self._context.run(self._begin)
        except BaseException as error:  # noqa: BLE001 (raised by whoever has asked)
            self._failure = error

    def end(self) -> None:
        self._done.set()

    def _begin(self) -> T:
        _at_work.set(self)
        return self._job()


class _Hand(threading.Thread):
    """Carries out one request after the other: to start a thread takes longer than most answers do."""

    def __init__(self) -> None:
        super().__init__(name="afspark-store", daemon=True)
        self.given: SimpleQueue[Request[Any]] = SimpleQueue()

    def run(self) -> None:
        while True:
            request = self.given.get()
            request.carry_out()
            # Before anybody hears of the end, and asks for the next one.
            _idle.append(self)
            request.end()
            del request


_idle: deque[_Hand] = deque()
# A forked child has none of its parent's threads.
os.register_at_fork(after_in_child=_idle.clear)


def _hand() -> _Hand:
    try:
        return _idle.pop()
    except IndexError:
        hand = _Hand()
        hand.start()
        return hand
