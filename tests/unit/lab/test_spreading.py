"""Whoever runs the parts of a campaign tells meanwhile how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from afspark.errors import UsageError
from afspark.lab.spreading import SparkTasks


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
