"""A process that is stopped in the midst of its task, as by SIGSTOP, and goes on later as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.fibers import Fiber
from tests.simulation.world import TaskKilled


class StoppedTask:
    """A task on a host that is stopped at its ``steps``-th step, if it has so many."""

    def __init__(self, host: str, task: Callable[[], Any], steps: int) -> None:
        self.host, self._left = host, steps
        self._fiber = Fiber(task, TaskKilled)

    def go_on(self) -> bool:
        """Has it work; whether it has ended. Otherwise it is stopped."""
        return self._fiber.resume()

    def step(self) -> None:
        """Called by the task at each of its steps."""
        self._left -= 1
        if self._left == 0:
            self._fiber.park()

    def kill(self) -> None:
        """Ends it where it is."""
        self._fiber.abandon()

    def result(self) -> Any:
        """What came of it, once it has ended."""
        if self._fiber.error is not None:
            raise self._fiber.error
        return self._fiber.result
