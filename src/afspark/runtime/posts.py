"""Where the receivers of a source run: in the driver, or as long-running tasks on executors."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark import SparkContext

from afspark.errors import WorkerFailed
from afspark.push.desk import Announced, Desk, DeskPlan, announced
from afspark.push.directory import Directory
from afspark.push.drain import Drain
from afspark.push.errors import PushError
from afspark.push.security import Access
from afspark.push.wire import Allowance
from afspark.runtime.host import spark_host
from afspark.runtime.placement import driver_host
from afspark.store import Store, seal

#: How long receivers on executors may take to come up.
START_SECONDS = 60.0
_GLANCE_SECONDS = 0.5
_CLOSING = "closing"


class Posts(ABC):
    """The receivers of one source."""

    def __init__(self, sc: SparkContext, plans: Sequence[DeskPlan], store: Store, access: Access) -> None:
        self.sc, self.plans, self.store, self.access = sc, plans, store, access

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

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


class DriverPosts(Posts):
    """In this process."""

    def open(self) -> None:
        self._desks = [Desk(plan, self.store) for plan in self.plans]
        for desk in self._desks:
            desk.open()

    def close(self) -> None:
        for desk in self._desks:
            desk.close()

    def announced(self) -> Sequence[Announced]:
        return [desk.announced for desk in self._desks if desk.announced is not None]

    def stats(self) -> dict[str, Any]:
        return {desk.announced.address: desk.stats() for desk in self._desks if desk.announced is not None}


class ExecutorPosts(Posts):
    """As tasks of a Spark job of their own; Spark starts one again, perhaps elsewhere, when its executor dies."""

    def open(self) -> None:
        self._since = time.time()
        self._closing = f"{_CLOSING}/{time.time_ns():020d}"
        self._thread = threading.Thread(target=self._run, name="afspark-receivers", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while len(self.announced()) < len(self.plans):
            if time.monotonic() >= deadline or not self._thread.is_alive():
                raise WorkerFailed(
                    f"{len(self.announced())} of {len(self.plans)} receivers came up.",
                    remedy="Receivers need a task slot each, besides those of the workers.",
                )
            time.sleep(0.1)
        plan = self.plans[0]
        self._directory = Directory(plan.schema, self._places, host=plan.host, port=plan.port, security=plan.security)

    def _places(self) -> list[str]:
        return [one.address for one in sorted(self.announced(), key=lambda one: one.number)]

    def addresses(self) -> list[str]:
        """Of the directory, which stays where it is while receivers move."""
        return [self._directory.address]

    def close(self) -> None:
        self.store.put(self._closing, seal({"kind": _CLOSING}, {}))
        self._thread.join(START_SECONDS)
        self._directory.shutdown()

    def announced(self) -> Sequence[Announced]:
        return [one for one in announced(self.store) if one.at >= self._since]

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in self.announced():
            with Drain(one.address, one.lanes[0], incarnation=0, fence=0, access=self.access, timeout=2.0) as drain:
                try:
                    found[one.address] = drain.stats()
                except PushError:
                    continue  # it is being started anew
        return found

    def _run(self) -> None:
        task = partial(_receive, driver_host(self.sc), self.store, self._closing)
        self.sc.parallelize(list(self.plans), len(self.plans)).foreachPartition(task)


def _receive(driver: str, store: Store, closing: str, plans: Iterator[DeskPlan]) -> None:
    for plan in plans:
        desk = Desk(replace(plan, host=spark_host(driver), port=0), store)
        desk.open()
        folder = closing.partition("/")[0]
        while closing not in store.list(folder):
            time.sleep(_GLANCE_SECONDS)
        desk.close()
