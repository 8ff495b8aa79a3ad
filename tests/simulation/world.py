"""What can go wrong, and when: hosts with memory that can be lost, and a seeded die cast at every step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from afspark.cluster.cluster import StageFailed
from afspark.protocol.requests import TaskRequest

#: A failure is so much more likely while a worker is being recovered, which is rare enough.
EAGER_IN_RECOVERY = 6.0


class Killed(BaseException):
    """A process has died. No handler of errors may mistake it for one."""


class TaskKilled(Killed):
    """The process of a worker."""


class DriverKilled(Killed):
    """The driver; the tasks it was waiting for with it."""


class HostSilent(StageFailed):
    """A host does not answer any more: its processes are stopped."""


class World:
    """One schedule's hosts, segments and failures."""

    def __init__(self, seed: int, *, hosts: int, failures: int, rate: float) -> None:
        self.rng = random.Random(f"world-{seed}")
        self.slots = {f"host{number}": 2 for number in range(hosts)}
        self.away: dict[str, int] = {}
        #: segments by (host, operator, worker)
        self.memory: dict[tuple[str, str, int], Any] = {}
        self.failures, self.rate = failures, rate
        #: objects that the schedule has destroyed
        self.destroyed: set[str] = set()
        self.lost_segments = 0
        #: tasks that everybody has forgotten; the first of their arguments is the host
        self.zombies: list[partial[Any]] = []
        self.woken = 0
        #: how likely a task is forgotten, and how likely one of those wakes when another task is sent
        self.forgetful, self.wakeful = 0.03, 0.25
        self.now = 0.0
        self.host = "driver"
        self.task: tuple[str, str, int] | None = None
        self.recovering = False
        self.dying = False
        self.quiet = False
        #: the task at work, if it may be stopped
        self.at_work: Any = None
        self.trace: list[str] = []
        self._points = 0
        self._expected = 80

    def say(self, what: str) -> None:
        self.trace.append(what)

    def new_batch(self) -> None:
        self._expected = max(20, self._points or self._expected)
        self._points = 0
        for host in [host for host, left in self.away.items() if left <= 0]:
            del self.away[host]
            self.slots[host] = 2
            self.say(f"{host} is back")
        self.away = {host: left - 1 for host, left in self.away.items()}

    @contextmanager
    def in_peace(self) -> Iterator[None]:
        before, self.quiet = self.quiet, True
        try:
            yield
        finally:
            self.quiet = before

    # --- failures -------------------------------------------------------------------------------------------

    def counted_failures(self, weight: float = 1.0, where: str = "") -> bool:
        """Casts the die for one step."""
        if self.dying or self.quiet:
            return False
        self._points += 1
        if self.failures <= 0:
            return False
        chance = self.rate / self._expected * weight * (EAGER_IN_RECOVERY if self.recovering else 1.0)
        if self.rng.random() >= chance:
            return False
        self.failures -= 1
        return True

    def point(self, where: str) -> None:
        """A step between two others: whoever is at work may die here."""
        if self.at_work is not None:
            self.at_work.step()
        if self.counted_failures():
            self.fail(where)

    def fail(self, where: str) -> None:
        if self.task is None:
            self._fail_driver(where)
        else:
            self._fail_task(where)

    def _fail_task(self, where: str) -> None:
        assert self.task is not None
        chance = self.rng.random()
        self._freeze()
        who = f"{self.task[1]}/{self.task[2]} on {self.task[0]}"
        if chance < 0.35:
            self.say(f"process of {who} dies at {where}")
        elif chance < 0.80:
            self.lose([self.task], f"{who} loses its state at {where}")
        elif chance < 0.90:
            self.lose(list(self.memory), f"all state is lost while {who} is at {where}")
        else:
            if self.rng.random() < 0.5:
                self.lose(list(self.memory), "with the driver all state")
            self.say(f"the driver dies while {who} is at {where}")
            self._die(DriverKilled)
        self._die(TaskKilled)

    def _fail_driver(self, where: str) -> None:
        chance = self.rng.random()
        if chance < 0.35:
            self.say(f"the driver dies at {where}")
            if self.rng.random() < 0.3:
                self.lose(list(self.memory), "with it all state")
            self._die(DriverKilled)
        elif chance < 0.55:
            self.lose(list(self.memory), f"all state is lost at {where}")
        elif chance < 0.85 or len(self.slots) < 2:
            held = sorted(self.memory)
            self.lose([self.rng.choice(held)] if held else [], f"state is lost at {where}")
        else:
            host = self.rng.choice(sorted(self.slots))
            del self.slots[host]
            self.away[host] = self.rng.randrange(3)
            self.say(f"{host} goes away at {where}")

    def lose(self, segments: list[tuple[str, str, int]], why: str) -> None:
        self.say(f"{why}: {segments}")
        for segment in segments:
            self.lost_segments += self.memory.pop(segment, None) is not None

    def wake(self, host: str) -> None:
        """Processes of a host that were stopped go on: somebody waits for what they have locked."""

    def was_promoted(self, place: tuple[str, str, int], incarnation: int, queued: int) -> None:
        """A secondary becomes the primary of an incarnation; the items of so many batches wait beside it."""

    def heard(self, operator: str, request: Any, report: Any) -> None:
        """A task has reported."""

    def close(self) -> None:
        """Ends what is still under way."""

    def _freeze(self) -> None:
        """The next process finds the memory as it is now: what is unwound from here on must not reach it."""
        if self.task in self.memory:
            self.memory[self.task] = self.memory[self.task].left_behind()

    def _die(self, how: type[Killed]) -> None:
        self.dying = True
        raise how

    def forgets(self, host: str, task: Callable[[], Any], requests: Sequence[TaskRequest] = ()) -> bool:
        """Whether a task of a stage with these ``requests`` is forgotten: it will wake as a zombie. Often because its
        host cannot be reached.
        """
        if self.quiet or self.failures <= 0 or self.rng.random() >= self.forgetful:
            return False
        self.failures -= 1
        self.zombies.append(partial(self.attempt, host, task))
        if len(self.slots) > 1 and self.rng.random() < 0.6:
            del self.slots[host]
            self.away[host] = self.rng.randrange(3)
        self.say(f"a task is forgotten on {host}{'' if host in self.slots else ', which is away'}")
        return True

    # --- tasks ----------------------------------------------------------------------------------------------

    def attempt(self, host: str, task: Callable[[], Any]) -> tuple[bool, Any]:
        """(True, result) of a task on a host; (False, None) if its process died."""
        before = self.host, self.task, self.recovering
        self.host, self.recovering = host, False
        try:
            return self._unless_dead(task())
        except TaskKilled:
            self.dying = False
            return False, None
        finally:
            self.host, self.task, self.recovering = before

    def _unless_dead(self, result: Any) -> tuple[bool, Any]:
        """What a task says; nothing if its process died, and unwinding it has met another error that hid this."""
        died, self.dying = self.dying, False
        return (False, None) if died else (True, result)

    def wake_zombies(self) -> None:
        """Tasks that everybody has forgotten may still be under way."""
        if self.quiet or self.dying or not self.zombies or self.rng.random() > self.wakeful:
            return
        zombie = self.zombies.pop(self.rng.randrange(len(self.zombies)))
        self.woken += 1
        self.say("a zombie wakes")
        with self.in_peace():
            self.say(f"the zombie says {zombie()}")


_WORLDS: list[World] = []


def world() -> World:
    """The one at work."""
    return _WORLDS[-1]


@contextmanager
def entered(one: World) -> Iterator[World]:
    _WORLDS.append(one)
    try:
        yield one
    finally:
        _WORLDS.pop()
