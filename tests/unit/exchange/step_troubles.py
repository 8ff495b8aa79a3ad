"""Troubles at any step of workers that train through the engine: processes that die, servers and hosts that are lost,
and steps that take longer.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from afspark import testing
from afspark.cluster.local import local_cluster
from afspark.cluster.local.processes import Answer
from afspark.exchange.model_client import ModelExchange
from afspark.model.training import Cells, StepFacts
from tests.unit.exchange.test_training import BATCHES, SCHEMA, model_of, rows, servers_of

#: What can happen to a worker at a step.
DIES_BEFORE, DIES_AFTER, SERVER, MODEL_HOST, OTHER_HOST, SLOW = KINDS = (
    "dies before its push",
    "dies after its push",
    "a server is killed",
    "the host of the model is lost",
    "the host of another worker is lost",
    "takes longer",
)
#: Of 300 items and two workers with 40 a step.
STEPS = 4


class ProcessDied(BaseException):
    """The process of a task has ended: nobody in it can catch that."""


@dataclass(frozen=True, order=True)
class Moment:
    """A step of a worker in a batch."""

    batch: int
    worker: int
    step: int


@dataclass
class Troubles:
    """What happens when a worker has come to a step, once each."""

    plan: Mapping[Moment, str]
    happened: list[tuple[Moment, str]] = field(default_factory=list)
    query: testing.LocalQuery | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def come(self, moment: Moment, push: Callable[[], Cells]) -> Cells:
        with self._lock:
            kind = self.plan.get(moment)
            if kind is None or any(seen == moment for seen, _ in self.happened):
                kind = None
            else:
                self.happened.append((moment, kind))
                self._strike(kind)
        if kind == DIES_BEFORE:
            raise ProcessDied
        if kind == SLOW:
            time.sleep(0.05)
        found = push()
        if kind == DIES_AFTER:
            raise ProcessDied
        return found

    def _strike(self, kind: str) -> None:
        query = self.query
        assert query is not None
        if kind == SERVER:
            server = servers_of(query)[0]
            os.kill(server.pid, signal.SIGKILL)
        elif kind == MODEL_HOST:
            self._lose(query.homes("global")[0])
        elif kind == OTHER_HOST:
            self._lose(query.homes("local")[-1])

    def _lose(self, host: str) -> None:
        assert self.query is not None
        if host in self.query.hosts:
            self.query.lose_host(host)


def drawn_plan(seed: int, *, kinds: tuple[str, ...] = KINDS, count: int = 4) -> dict[Moment, str]:
    """Some moments, and what happens then."""
    chance = random.Random(seed)
    moments = [Moment(batch, worker, step) for batch in range(BATCHES) for worker in (0, 1) for step in range(STEPS)]
    return {moment: chance.choice(kinds) for moment in chance.sample(moments, count)}


def _in_threads(*tasks: Callable[[], Any]) -> list[Answer]:
    def called(task: Callable[[], Any]) -> Answer:
        # At once, as by Spark: the others are at work.
        for _ in range(local_cluster.TASK_TRIES):
            try:
                return True, task()
            except ProcessDied:
                continue
        return False, "killed"

    with ThreadPoolExecutor(len(tasks)) as threads:
        return list(threads.map(called, tasks))


def trained_among(
    patch: pytest.MonkeyPatch, pipeline: Callable[[Any], Any], troubles: Troubles, *, batches: int = BATCHES
) -> tuple[dict[int, float], dict[str, Any], list[int]]:
    """The model, what workers have counted, and the items that every batch has merged."""
    real = ModelExchange.push

    def push(self: ModelExchange, cells: Cells, facts: StepFacts) -> Cells:
        moment = Moment(self._hello.batch, self._hello.worker, self._step)
        return troubles.come(moment, lambda: real(self, cells, facts))

    patch.setattr(ModelExchange, "push", push)
    patch.setattr(local_cluster, "side_by_side", _in_threads)
    with testing.run(pipeline, SCHEMA) as query:
        troubles.query = query
        items = []
        for batch in range(batches):
            query.batch(rows(batch))
            told = query.items("global")
            assert told is not None
            items.append(sum(told["items"].to_pylist()))
        return model_of(query), query.results("local").to_pylist()[0], items
