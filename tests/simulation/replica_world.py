"""A world of hosts that are killed and stopped, one or two at a time, and that counts what secondaries are used for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from afspark.policies import CompleteState
from afspark.protocol.lifecycle import Hint
from afspark.protocol.replicas import ReplicaRole
from afspark.protocol.reports import Status
from afspark.protocol.requests import TaskRequest
from tests.simulation.graph_world import GraphWorld, Place
from tests.simulation.stopped_task import StoppedTask
from tests.simulation.world import HostSilent, TaskKilled

#: A task is stopped before it has made more steps than this.
LONGEST = 12


class ReplicaWorld(GraphWorld):
    """``stops``: how likely the host of a task is stopped while that runs. ``whole``: how likely a failure is that of a
    whole host, and of nothing else but another host. ``builds``: how likely a task is forgotten that builds the state
    of a secondary. ``calm``: so many batches begin before anything fails.
    """

    def __init__(
        self,
        seed: int,
        *,
        stops: float = 0.03,
        whole: float = 0.4,
        builds: float = 0.0,
        wakeful: float = 0.25,
        calm: int = 0,
        failures: int,
        **given: Any,
    ) -> None:
        super().__init__(seed, failures=0 if calm else failures, **given)
        self.wakeful, self._builds = wakeful, builds
        self._stops, self._whole, self._calm, self._later = stops, whole, calm, failures
        self._stopped: list[tuple[StoppedTask, tuple[Any, ...], Place | None, int]] = []
        #: (operator, worker, incarnation) of those that a secondary has become
        self.promotions: set[tuple[str, int, int]] = set()
        self.seen: Counter[str] = Counter()

    def new_batch(self) -> None:
        super().new_batch()
        if self._calm:
            self._calm -= 1
            self.failures = 0 if self._calm else self._later

    # --- failures -------------------------------------------------------------------------------------------

    def _fail_task(self, where: str) -> None:
        assert self.task is not None
        if self.rng.random() < self._whole:
            self._freeze()
            self._fail_hosts(self.task[0], where)
            self._die(TaskKilled)
        super()._fail_task(where)

    def _fail_driver(self, where: str) -> None:
        if self.slots and self.rng.random() < self._whole:
            # Mostly one where a primary is.
            primaries = {place[0] for place, found in self.memory.items() if not found.secondary} & self.slots.keys()
            likely = primaries if primaries and self.rng.random() < 0.7 else self.slots
            self._fail_hosts(self.rng.choice(sorted(likely)), where)
        else:
            super()._fail_driver(where)

    def _fail_hosts(self, host: str, where: str) -> None:
        """One host fails, and another one with it now and then."""
        self._kill_host(host, where)
        others = sorted(self.slots)
        if others and self.rng.random() < 0.25:
            self.seen["two hosts at once"] += 1
            other = self.rng.choice(others)
            if self.rng.random() < 0.5:
                self._kill_host(other, where)
            else:
                self._leave(other, f"{other} is stopped at {where}")

    def _kill_host(self, host: str, where: str) -> None:
        """A host goes with its state and its processes; the last one is back at once."""
        self.seen["host killed"] += 1
        self.lose([place for place in self.memory if place[0] == host], f"{host} is killed at {where}")
        self.zombies = [zombie for zombie in self.zombies if zombie.args[0] != host]
        for one in [one for one in self._stopped if one[0].host == host]:
            self._stopped.remove(one)
            self._kill(one[0])
        self._leave(host, f"{host} is away")

    def leave(self, host: str) -> None:
        """A host is not there when the next driver starts."""
        self._leave(host, f"{host} is not there")

    def _leave(self, host: str, why: str) -> None:
        if len(self.slots) > 1 and host in self.slots:
            del self.slots[host]
            self.away[host] = self.rng.randrange(3)
            self.say(why)

    # --- processes that are stopped -------------------------------------------------------------------------

    def forgets(self, host: str, task: Callable[[], Any], requests: Sequence[TaskRequest] = ()) -> bool:
        builds = any(one.role is ReplicaRole.SECONDARY and one.hint is not Hint.RESUME for one in requests)
        before, self.forgetful = self.forgetful, max(self.forgetful, self._builds if builds else 0.0)
        try:
            return super().forgets(host, task)
        finally:
            self.forgetful = before

    def attempt(self, host: str, task: Callable[[], Any]) -> tuple[bool, Any]:
        stops = not (self.quiet or self.dying) and self.failures > 0 and len(self.slots) > 1
        if not stops or self.rng.random() >= self._stops:
            return super().attempt(host, task)
        process = StoppedTask(host, partial(super().attempt, host, task), self.rng.randint(1, LONGEST))
        if self._go_on(process, (host, None, False)):
            result: tuple[bool, Any] = process.result()
            return result
        self.failures -= 1
        self.seen["task stopped"] += 1
        self._leave(host, f"{host} is stopped while {self._stopped[-1][2]} is at work")
        raise HostSilent(f"{host} does not answer")

    def _go_on(self, process: StoppedTask, its: tuple[Any, ...]) -> bool:
        """Has a process work until it is stopped or has ended; the latter is True."""
        own = self.host, self.task, self.recovering
        at_work, self.at_work = self.at_work, process
        self.host, self.task, self.recovering = its
        ended = process.go_on()
        if not ended:
            its, place = (self.host, self.task, self.recovering), self.task
            found = self.memory.get(place) if place else None
            primary = found is not None and not found.secondary
            self._stopped.append((process, its, place, found.incarnation if primary else -1))
        self.at_work = at_work
        self.host, self.task, self.recovering = own
        return ended

    def wake_zombies(self) -> None:
        super().wake_zombies()
        if self.quiet or self.dying:
            return
        for host in sorted({process.host for process, *_ in self._stopped} & self.away.keys()):
            if self.rng.random() < 0.05:
                self._return(host)
        if self._stopped and self.rng.random() < 0.4:
            self.wake(self.rng.choice(self._stopped)[0].host)

    def wake(self, host: str) -> None:
        """The stopped processes of a host that is back go on to their ends."""
        for one in [one for one in self._stopped if one[0].host == host and host in self.slots]:
            self._stopped.remove(one)
            process, its, place, incarnation = one
            self.seen["stopped task woken"] += 1
            if place and (*place[1:], incarnation + 1) in self.promotions:
                self.seen["primary woken after its secondary was promoted"] += 1
            self.say(f"{host} goes on with {place}")
            with self.in_peace():
                self._go_on(process, its)
                process.result()
                self.say("  which ends")

    def _return(self, host: str) -> None:
        del self.away[host]
        self.slots[host] = 2
        self.say(f"{host} goes on")

    def _kill(self, process: StoppedTask) -> None:
        own = self.host, self.task, self.recovering, self.dying
        self.dying = True
        process.kill()
        self.host, self.task, self.recovering, self.dying = own

    def close(self) -> None:
        while self._stopped:
            self._kill(self._stopped.pop()[0])

    # --- what is counted ------------------------------------------------------------------------------------

    def was_promoted(self, place: Place, incarnation: int, queued: int) -> None:
        """The state at a place becomes the primary of an incarnation; the items of so many batches wait there."""
        if (*place[1:], incarnation) not in self.promotions:
            self.promotions.add((*place[1:], incarnation))
            self.seen["promoted"] += 1
            self.seen["promoted with a queue"] += queued > 0

    def heard(self, operator: str, request: Any, report: Any) -> None:
        if request.queued and report.status is Status.APPLIED and not report.lacks_batch:
            self.seen["batch taken from a queue"] += 1
            self.seen["several batches taken in one stage"] += bool(request.following)
        if isinstance(request.recovery, CompleteState) and report.status is Status.APPLIED:
            self.seen["promoted behind a record" if request.promotes else "secondary behind a record"] += 1
