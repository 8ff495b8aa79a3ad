"""Threads, locks and what waits for them, as receivers are given them: a simulation with one thread hands in others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Threads(Protocol):
    """Makes locks, and starts work beside the caller's."""

    def lock(self) -> threading.Lock: ...

    def condition(self, lock: threading.Lock) -> threading.Condition: ...

    def event(self) -> threading.Event: ...

    def start(self, work: Callable[[], object], name: str) -> None:
        """Begins something that ends by itself, and that nobody waits for."""

    def start_loop(self, work: Callable[[], object], name: str) -> Callable[[], None]:
        """Begins something that goes on until it is told to stop. What is returned waits for its end."""


class SystemThreads:
    """Real threads; a process ends without waiting for them."""

    def lock(self) -> threading.Lock:
        return threading.Lock()

    def condition(self, lock: threading.Lock) -> threading.Condition:
        return threading.Condition(lock)

    def event(self) -> threading.Event:
        return threading.Event()

    def start(self, work: Callable[[], object], name: str) -> None:
        self.start_loop(work, name)

    def start_loop(self, work: Callable[[], object], name: str) -> Callable[[], None]:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread.join
