"""A task that can be left standing anywhere and go on later: a thread that runs only while it is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Fiber:
    """Runs ``task`` when it is resumed, until it parks or ends; ``ended`` has what came of it then."""

    def __init__(self, task: Callable[[], Any], abandoned: Callable[[], BaseException]) -> None:
        self._task, self._abandoned = task, abandoned
        self._go, self._stop = threading.Semaphore(0), threading.Semaphore(0)
        self._left_alone = False
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> bool:
        """Whether it has ended by now."""
        self._go.release()
        self._stop.acquire()
        return self.ended

    def park(self) -> None:
        """Inside the task: stands here until it is resumed."""
        self._stop.release()
        self._go.acquire()
        if self._left_alone:
            raise self._abandoned()

    def abandon(self) -> None:
        """Ends it where it stands."""
        self._left_alone = True
        if not self.ended:
            self.resume()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self._left_alone:
                self.result = self._task()
        except BaseException as error:  # noqa: BLE001 (told to whoever resumed it)
            self.error = error
        self.ended = True
        self._stop.release()
