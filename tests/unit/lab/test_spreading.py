"""Whoever runs the parts of a campaign tells meanwhile how far it is."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from afspark.cluster.local.processes import answer, begin
from afspark.errors import UsageError
from afspark.lab.spreading import ForkedProcesses, SparkTasks


class OneJob:
    """Stands in for a session: the tasks of a job run here, one after the other."""

    def __init__(self) -> None:
        self.sparkContext = SimpleNamespace(parallelize=self._parallelized)

    def _parallelized(self, parts: list[Any], slices: int) -> OneJob:
        self._parts = parts
        return self

    def mapPartitions(self, task: Callable[[Iterator[Any]], Iterator[Any]]) -> OneJob:
        self._task = task
        return self

    def collect(self) -> list[Any]:
        return [found for part in self._parts for found in self._task(iter([part]))]


def spread() -> SparkTasks:
    return SparkTasks(OneJob())  # type: ignore[arg-type]


def test_a_spark_job_that_is_under_way_tells_how_far_it_is() -> None:
    heard, in_time = threading.Event(), []
    spread().run(lambda part: in_time.append(heard.wait(20)), [1], heard.set)
    assert in_time == [True]
    ticks: list[str] = []
    spread().run(lambda part: None, [1, 2], lambda: ticks.append(threading.current_thread().name))
    assert ticks[-1] == "MainThread", "the end is told as well"


def test_a_job_without_parts_is_none() -> None:
    spread().run(lambda part: None, [], lambda: pytest.fail("nothing is under way"))


def test_what_a_part_of_a_job_raises_is_raised_and_nobody_is_told_afterwards() -> None:
    def refused(part: int) -> None:
        raise UsageError("It cannot be.")

    with pytest.raises(UsageError, match="It cannot be"):
        spread().run(refused, [1], lambda: None)
    assert "campaign-progress" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a part that was begun comes to its end")
def test_parts_end_with_the_process_that_runs_them() -> None:
    reader, writer = os.pipe()
    campaign = os.fork()
    if not campaign:

        def part(number: int) -> None:
            parent = os.getppid()
            os.write(writer, b"b")
            while os.getppid() == parent:
                time.sleep(0.01)
            time.sleep(0.5)
            os.write(writer, b"e")

        ForkedProcesses(2).run(part, [1, 2], lambda: None)
    os.close(writer)
    heard = b""
    while len(heard) < 2:
        heard += os.read(reader, 1)
    os.kill(campaign, signal.SIGKILL)
    os.waitpid(campaign, 0)
    # The pipe ends with the last one that could write into it.
    with os.fdopen(reader, "rb") as pipe:
        assert heard + pipe.read() == b"bb"


def test_a_process_to_which_nobody_listens_does_not_go_on_as_its_parent() -> None:
    reader, writer = os.pipe()
    gate, opened = os.pipe()
    parent = os.getpid()
    try:
        child = begin(lambda: os.read(gate, 1))
        os.close(child[1])
        os.write(opened, b"x")
        os.waitpid(child[0], 0)
    finally:
        if os.getpid() != parent:
            os.write(writer, b"goes on")
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b""
    for one in (gate, opened):
        os.close(one)
    assert answer(begin(lambda: 3)) == (True, 3)
