"""Where the receivers of a source run: in the driver, or as long-running tasks on executors."""

from __future__ import annotations

import logging
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from afspark.cluster.cluster import Cluster
from afspark.coordinator.placement import spread
from afspark.errors import WorkerFailed
from afspark.push.consumer.certificates import check_certificate, check_reachable
from afspark.push.consumer.lane_client import LaneClient
from afspark.push.receiver.directory import Directory
from afspark.push.receiver.receiver_process import ReceiverPlan, ReceiverProcess, item_log
from afspark.push.receiver.sessions import session_key
from afspark.push.wire.announcements import Announced, announced
from afspark.push.wire.messages import Allowance, Positions
from afspark.push.wire.push_errors import PushError
from afspark.push.wire.security import Access, is_wildcard
from afspark.store import Store, seal
from afspark.task.task_environment import TaskEnvironment

LOG = logging.getLogger("afspark")

#: How long receivers on executors may take to come up.
START_SECONDS = 60.0
#: How long a receiver waits for the executor of its host to come back.
AWAY_SECONDS = 30.0
_GLANCE_SECONDS = 0.5
_CLOSING = "closing"

#: the recorded positions of some lanes
Listed = Callable[[Sequence[int]], Mapping[int, Positions]]


class ReceiverHosts(ABC):
    """The receivers of one source. ``access``: what workers show them."""

    def __init__(
        self, cluster: Cluster, plans: Sequence[ReceiverPlan], store: Store, access: Access, listed: Listed
    ) -> None:
        self.cluster, self.plans, self.store, self.access, self.listed = cluster, plans, store, access, listed

    #: hosts on which they take task slots
    homes: list[str] = []  # noqa: RUF012 (each kind sets its own)

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def crash(self) -> None:
        """Kills the receivers' processes, as a failure of the whole system does: for experiments."""

    @abstractmethod
    def announced(self) -> Sequence[Announced]:
        """Where they listen now."""

    @abstractmethod
    def stats(self) -> dict[str, Any]: ...

    def addresses(self) -> list[str]:
        return [one.address for one in self.announced()]

    def of_lane(self, lane: int) -> tuple[Announced, Allowance]:
        """Who has a lane, and what it may hold without backup."""
        number = next(plan.number for plan in self.plans if lane in plan.lanes)
        found = next((one for one in self.announced() if one.number == number), None)
        if found is None:
            raise WorkerFailed(f"Receiver {number} is not there.", remedy="See the executors' logs.", receiver=number)
        return found, self.plans[number].allow(found.failures)

    def lost(self) -> dict[int, float]:
        """By lane, how many items its receiver's failures so far can have taken; infinite where no number limits it."""
        return {lane: one.lost for one in self.announced() for lane in one.lanes}


class DriverReceivers(ReceiverHosts):
    """Receivers that run in the driver's process."""

    def open(self) -> None:
        environment = self.cluster.receiver_environment
        self._processes = [ReceiverProcess(self._plan(plan), self.store, environment) for plan in self.plans]
        try:
            for process in self._processes:
                process.open()
        except BaseException:
            self.close()
            raise

    def _plan(self, plan: ReceiverPlan) -> ReceiverPlan:
        reached_at = self.cluster.driver_host if is_wildcard(plan.host) else ""
        return replace(plan, listed=self.listed(plan.lanes), reached_at=reached_at)

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def crash(self) -> None:
        for process in self._processes:
            process.crash(self.listed(process.plan.lanes))

    def announced(self) -> Sequence[Announced]:
        return [process.announced for process in self._processes if process.announced is not None]

    def stats(self) -> dict[str, Any]:
        return {
            process.announced.address: process.stats() for process in self._processes if process.announced is not None
        }


class ExecutorReceivers(ReceiverHosts):
    """Receivers that run as tasks of jobs of their own, each pinned to a host: there is room for workers elsewhere."""

    def open(self) -> None:
        # Made here: receivers that start at the same moment would make one each.
        session_key(item_log(self.store))
        # No clock decides which announcements are of this start: those of hosts differ, and are set back.
        self._start = secrets.token_hex(8)
        self._closing = f"{_CLOSING}/{self._start}"
        self._closed = threading.Event()
        placed = spread(range(len(self.plans)), self.cluster.slots_by_host())
        self.homes = [placed[number] for number in range(len(self.plans))]
        for plan, home in zip(self.plans, self.homes, strict=True):
            check_certificate(plan.security, home)
        self._directory: Directory | None = None
        self._threads = [
            threading.Thread(target=self._keep, args=(number,), name=f"afspark-receiver-{number}", daemon=True)
            for number in range(len(self.plans))
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._await_all()
            plan = self.plans[0]
            if plan.security is not None and plan.security.tls:
                for one in self.announced():
                    check_reachable(one.address, one.lanes[0], self.access)
            self._directory = Directory(
                plan.schema, self._places, host=plan.host, port=plan.port, security=plan.security
            )
        except BaseException:
            self.close()
            raise

    def _await_all(self) -> None:
        deadline = self.cluster.clock.monotonic() + START_SECONDS
        while len(self.announced()) < len(self.plans):
            if self.cluster.clock.monotonic() >= deadline:
                raise WorkerFailed(
                    f"{len(self.announced())} of {len(self.plans)} receivers came up.",
                    remedy="Receivers need a task slot each, besides those of the workers.",
                )
            self.cluster.clock.sleep(0.1)

    def close(self) -> None:
        self._closed.set()
        self.store.put(self._closing, seal({"kind": _CLOSING}, {}))
        for thread in self._threads:
            thread.join(START_SECONDS)
        if self._directory is not None:
            self._directory.shutdown()

    def crash(self) -> None:
        """Nothing to do: they die with the executors that the same failure kills."""

    def announced(self) -> Sequence[Announced]:
        return [one for one in announced(self.store) if one.opened_by == self._start]

    def addresses(self) -> list[str]:
        """The address of the directory, which stays where it is while receivers move."""
        return [] if self._directory is None else [self._directory.address]

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in self.announced():
            with LaneClient(one.address, one.lanes[0], access=self.access, timeout=2.0) as client:
                try:
                    found[one.address] = client.stats()
                except PushError:
                    continue  # it is being started anew
        return found

    def _places(self) -> list[str]:
        return [one.address for one in sorted(self.announced(), key=lambda one: one.number)]

    def _keep(self, number: int) -> None:
        """Runs one receiver, again and again, until it was closed."""
        while not self._closed.is_set():
            home = self._home(number)
            plan = self.plans[number]
            plan = replace(plan, listed=self.listed(plan.lanes), opened_by=self._start)
            try:
                self.cluster.run_on({0: home}, partial(_receive, home, self.store, self._closing, plan))
            except Exception:
                # It was tried on several executors; what stops the whole cluster ends this thread as well.
                if self.cluster.stopped:
                    return
                LOG.warning("Receiver %d ended and is started again.", number, exc_info=True)
            self._closed.wait(_GLANCE_SECONDS)

    def _home(self, number: int) -> str:
        """Its host, once that has an executor; another one if it stays away."""
        deadline = self.cluster.clock.monotonic() + AWAY_SECONDS
        while self.homes[number] not in (slots := self.cluster.slots_by_host()):
            if self.cluster.clock.monotonic() >= deadline and slots:
                others = [home for at, home in enumerate(self.homes) if at != number]
                self.homes = [*self.homes[:number], spread([number], slots, others)[number], *self.homes[number + 1 :]]
            self._closed.wait(0.1)
        return self.homes[number]


def _receive(
    home: str, store: Store, closing: str, plan: ReceiverPlan, environment: TaskEnvironment, _: int
) -> tuple[()]:
    """The task that is a receiver until all are told to close; it gives out nothing."""
    if environment.host != home:
        return ()  # its executor was away; here it would take the slot of a worker
    process = ReceiverProcess(replace(plan, host=home, port=0), store)
    process.open()
    folder = closing.partition("/")[0]
    while closing not in store.list(folder):
        environment.clock.sleep(_GLANCE_SECONDS)
    process.close()
    return ()
