"""Watches the executors of a query, and ends stages that wait for one that does not answer."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from py4j.protocol import Py4JError

from afspark.clock import Clock
from afspark.cluster.liveness import HostFailure, Liveness, Patience, StageUnderWay

LOG = logging.getLogger("afspark")

#: A watch that nobody has asked anything for so long ends; the next stage begins another one.
IDLE_SECONDS = 30.0

_NUMBERS = itertools.count()


#: Begins to do something, and goes on meanwhile.
Start = Callable[[Callable[[], None]], None]


def in_a_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="afspark-executor-watch", daemon=True).start()


class AskedQuestion(Protocol):
    """What an executor was asked."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_answered(self) -> bool: ...


class AskedExecutors(Protocol):
    """What a watch needs of Spark: `executors.Executors`."""

    @property
    def is_stopped(self) -> bool: ...

    def hosts(self) -> dict[str, str]: ...

    def ask(self, executor: str) -> AskedQuestion | None: ...

    def forget(self, executor: str) -> None: ...

    def withhold_tasks(self, executor: str) -> None: ...

    def give_tasks(self, executor: str) -> None: ...

    def replace(self, executor: str, why: str) -> None: ...

    def used_by(self, tag: str) -> frozenset[str]: ...

    def cancel(self, tag: str) -> None: ...


class ExecutorWatch:
    """A thread that asks all executors for signs of life while stages run, and for a while after."""

    def __init__(
        self,
        executors: AskedExecutors,
        clock: Clock,
        patience: Patience,
        start: Start = in_a_thread,
        aside: Start = in_a_thread,
    ) -> None:
        self._executors, self._clock = executors, clock
        #: does what may take long, while others are asked
        self._aside = aside
        self._replacing: set[str] = set()
        self._liveness = Liveness(patience)
        self._questions: dict[str, AskedQuestion] = {}
        self._withheld: set[str] = set()
        self._stages: dict[str, StageUnderWay] = {}
        self._lock = threading.Lock()
        self._start, self._runs = start, False
        self._asked = clock.monotonic()

    @property
    def patience(self) -> Patience:
        return self._liveness.patience

    @patience.setter
    def patience(self, patience: Patience) -> None:
        self._liveness.patience = patience

    @contextmanager
    def stage(self, hosts: Iterable[str]) -> Iterator[StageUnderWay]:
        """Within it, jobs with the tag of what it gives are cancelled as soon as they wait for an executor in vain."""
        stage = StageUnderWay(f"afspark-stage-{next(_NUMBERS)}", frozenset(hosts))
        with self._lock:
            self._stages[stage.tag] = stage
        self.wake()
        try:
            yield stage
        finally:
            with self._lock:
                del self._stages[stage.tag]

    def missing_hosts(self) -> frozenset[str]:
        """Hosts where nothing should be begun, whatever Spark says of them."""
        self.wake()
        with self._lock:
            return self._liveness.missing_hosts()

    def silent_hosts(self) -> frozenset[str]:
        """Hosts with an executor that owes an answer for too long."""
        self.wake()
        with self._lock:
            return self._liveness.silent_hosts()

    def failures(self) -> tuple[HostFailure, ...]:
        with self._lock:
            return self._liveness.failures()

    def detection_seconds(self) -> float:
        with self._lock:
            return self._liveness.detection_seconds

    def wake(self) -> None:
        """Somebody needs to know: the watch goes on for a while."""
        with self._lock:
            self._asked = self._clock.monotonic()
            if not self._runs:
                self._runs = True
                self._start(self._run)

    def _run(self) -> None:
        while not self._is_over():
            try:
                self.look()
            except (Py4JError, OSError) as error:
                # An executor may go while it is asked. That the driver's JVM ends, `_is_over` finds out.
                LOG.debug("A round of the watch has failed: %s", error)
            with self._lock:
                seconds = self._liveness.next_look(self._clock.monotonic())
            self._clock.sleep(seconds)

    def _is_over(self) -> bool:
        with self._lock:
            is_needed = self._stages or self._withheld or self._clock.monotonic() - self._asked <= IDLE_SECONDS
            if is_needed and not self._has_ended():
                return False
            self._runs = False
            # What was known is out of date when another thread begins.
            self._liveness.pause()
            self._questions.clear()
            return True

    def _has_ended(self) -> bool:
        try:
            return self._executors.is_stopped
        except (Py4JError, OSError):
            return True

    def look(self) -> None:
        """One round: hears answers, asks again, and acts on who is missing."""
        hosts = self._executors.hosts()
        for name in self._questions.keys() - hosts.keys():
            del self._questions[name]
            self._executors.forget(name)
        over = {name: question for name, question in self._questions.items() if question.is_over}
        answered = [name for name, question in over.items() if question.is_answered]
        for name in over:
            del self._questions[name]
        now = self._clock.monotonic()
        with self._lock:
            for name in answered:
                self._liveness.answered(name, now)
            found = self._liveness.look(hosts, now)
            to_remove = [name for name in self._liveness.to_remove(now) if name not in self._replacing]
            self._replacing.update(to_remove)
            silent = self._liveness.silent_executors()
            given_up = self._liveness.given_up_hosts(now)
            stages = list(self._stages.values())
        for failure in found:
            LOG.warning(
                "The executor %s on %s is %s: nothing was heard of it for %.1f s.",
                failure.executor,
                failure.host,
                failure.kind,
                failure.noticed - failure.heard,
            )
        self._withhold(silent)
        # Those first of which it is known: of the others Spark has to be asked, which takes a while.
        for stage in sorted(stages, key=lambda stage: not stage.waits_for(given_up)):
            if stage.waits_for(given_up) or silent & self._used(stage, silent):
                stage.is_cancelled = True
                self._executors.cancel(stage.tag)
        for name in to_remove:
            self._aside(partial(self._replace, name))
        self._ask(hosts.keys() - self._questions.keys())

    def _replace(self, executor: str) -> None:
        """Has Spark replace an executor, which asks the cluster's manager and may wait for its answer."""
        try:
            self._executors.replace(executor, f"it has not answered for {self.patience.removal:g} s")
        except (Py4JError, OSError) as error:
            LOG.debug("The executor %s could not be replaced: %s", executor, error)
        else:
            with self._lock:
                self._liveness.removed(executor)
        finally:
            with self._lock:
                self._replacing.discard(executor)

    def _used(self, stage: StageUnderWay, silent: Collection[str]) -> frozenset[str]:
        return self._executors.used_by(stage.tag) if silent else frozenset()

    def _withhold(self, silent: frozenset[str]) -> None:
        for name in silent - self._withheld:
            self._executors.withhold_tasks(name)
        for name in self._withheld - silent:
            self._executors.give_tasks(name)
        self._withheld = set(silent)

    def _ask(self, names: Collection[str]) -> None:
        for name in names:
            question = self._executors.ask(name)
            if question is not None:
                with self._lock:
                    self._liveness.asked(name, self._clock.monotonic())
                self._questions[name] = question
