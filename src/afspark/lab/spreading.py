"""Who runs the parts of a campaign: processes of this machine, or the tasks of a Spark job."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from pyspark.sql import SparkSession

from afspark.cluster.local.processes import answer, begin
from afspark.errors import AfsparkError
from afspark.lab.trial_query import sweep

#: Called now and then while parts are at work.
Tick = Callable[[], None]

_TICK_SECONDS = 0.5

_SIGNAL_AT_PARENTS_END = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Spread(Protocol):
    """Runs the parts of a campaign, several at a time."""

    #: whether its processes have what this one has loaded when they begin
    inherits: ClassVar[bool]

    def run(self, task: Callable[[Any], Any], parts: Sequence[Any], tick: Tick) -> None:
        """Calls ``task`` with every part. What one raises is raised, once nobody is at work any more."""


class InThisProcess:
    """One part after the other."""

    inherits: ClassVar[bool] = True

    def run(self, task: Callable[[Any], Any], parts: Sequence[Any], tick: Tick) -> None:
        for part in parts:
            task(part)
            tick()


@dataclass(frozen=True)
class ForkedProcesses:
    """A process for every part, ``count`` at a time."""

    inherits: ClassVar[bool] = True
    count: int

    def run(self, task: Callable[[Any], Any], parts: Sequence[Any], tick: Tick) -> None:
        waiting = list(parts)
        working: dict[int, tuple[int, int]] = {}
        try:
            while waiting or working:
                while waiting and len(working) < self.count:
                    process = begin(partial(_tried_by_child, os.getpid(), task, waiting.pop(0)))
                    working[process[1]] = process
                ready, _, _ = select.select(list(working), [], [], _TICK_SECONDS)
                for reader in ready:
                    _raise_if_failed(answer(working.pop(reader)))
                tick()
        finally:
            for child, reader in working.values():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(reader)
            sweep()


@dataclass(frozen=True)
class SparkTasks:
    """A Spark task for every part. All hosts have to see the campaign's folder."""

    inherits: ClassVar[bool] = False
    spark: SparkSession

    def run(self, task: Callable[[Any], Any], parts: Sequence[Any], tick: Tick) -> None:
        if not parts:
            return
        rows = self.spark.sparkContext.parallelize(list(parts), len(parts)).mapPartitions(partial(_all_tried, task))
        with _ticking(tick):
            answers = rows.collect()
        for found in answers:
            _raise_if_failed((True, found))
        tick()


@contextmanager
def _ticking(tick: Tick) -> Iterator[None]:
    """Calls ``tick`` now and then while this is entered: a job itself says nothing before its end."""
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_TICK_SECONDS):
            tick()

    thread = threading.Thread(target=tell, name="campaign-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _tried(task: Callable[[Any], Any], part: Any) -> AfsparkError | None:
    """What a part raises that the user should hear of; it travels better as a value."""
    try:
        task(part)
    except AfsparkError as error:
        return error
    return None


def _tried_by_child(parent: int, task: Callable[[Any], Any], part: Any) -> AfsparkError | None:
    """The same, in a process that ends with its parent: a campaign that is started again does the part anew."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_AT_PARENTS_END, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    return _tried(task, part)


def _all_tried(task: Callable[[Any], Any], parts: Iterator[Any]) -> Iterator[AfsparkError | None]:
    for part in parts:
        yield _tried(task, part)


def _raise_if_failed(answered: tuple[bool, Any]) -> None:
    ended, found = answered
    if not ended:
        raise AfsparkError(
            f"A part of the campaign has failed: {str(found).strip().splitlines()[-1]}", trace=str(found)
        )
    if found is not None:
        raise found
