"""Spark's part in one process: jobs over partitions, tasks that are tried again, map outputs that stay."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from py4j.protocol import Py4JJavaError

from afspark.cluster.spark import stages
from afspark.coordinator import batch_loop as engine
from afspark.coordinator import worker_group as group
from afspark.errors import SegmentError
from afspark.graph import node
from afspark.model.operator import Operator
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident.residents import Residents
from afspark.store import reading
from afspark.task import receiving, sending, worker
from afspark.task.feed import Feed
from tests.simulation.memory import MemoryAddress, MemoryRoot, census
from tests.simulation.world import world

TASK_TRIES = 4


class JobFailed(Py4JJavaError):  # type: ignore[misc]
    """A task died as often as Spark lets it."""

    def __init__(self) -> None:
        Exception.__init__(self, "a task died too often")

    def __str__(self) -> str:
        return "a task died too often"


class Rdd:
    """The few methods of Spark's RDD that stages use."""

    def __init__(self, homes: list[str | None], compute: Callable[[int], list[Any]], *, mail: bool = False) -> None:
        self.homes, self.compute, self.mail = homes, compute, mail

    def mapPartitions(self, change: Callable[[Iterator[Any]], Iterable[Any]]) -> Rdd:
        inner = self.compute
        return Rdd(self.homes, lambda i: list(change(iter(inner(i)))))

    def map(self, change: Callable[[Any], Any]) -> Rdd:
        return self.mapPartitions(lambda rows: [change(row) for row in rows])

    def partitionBy(self, partitions: int, owner: Callable[[Any], int]) -> Rdd:
        outputs = self.collect()
        return Rdd([None] * partitions, lambda i: [row for row in outputs if owner(row[0]) == i])

    def zip(self, other: Rdd) -> Rdd:
        mine, theirs = self.compute, other.compute
        return Rdd(self.homes, lambda i: list(zip(mine(i), theirs(i), strict=True)))

    def collect(self) -> list[Any]:
        return [row for partition in range(len(self.homes)) for row in self._run(partition)]

    def _run(self, partition: int) -> list[Any]:
        here = world()
        home = self.homes[partition]
        task = partial(self.compute, partition)
        for _ in range(TASK_TRIES):
            here.wake_zombies()
            here.point("a task is sent")
            host = home if home in here.slots else min(here.slots)
            assert host is not None
            if here.forgets(host, task):
                continue
            ended, rows = here.attempt(host, task)
            if ended:
                return list(rows)
        raise JobFailed


def _anchor(sc: Any, homes: Iterable[str]) -> Rdd:
    return Rdd(list(homes), lambda partition: [partition])


def _mailed(sc: Any, homes: Iterable[str], items: Rdd) -> Rdd:
    places = list(homes)
    inbox = items.partitionBy(len(places), int)
    return Rdd(places, lambda partition: [(partition, row) for row in inbox.compute(partition)])


class Context:
    """What the engine asks of a SparkContext."""

    def __init__(self) -> None:
        self._jsc = self

    def sc(self) -> Context:
        return self

    def isStopped(self) -> bool:
        return False

    def union(self, rdds: list[Rdd]) -> Rdd:
        parts = [(rdd, partition) for rdd in rdds for partition in range(len(rdd.homes))]
        return Rdd([rdd.homes[inner] for rdd, inner in parts], lambda i: parts[i][0].compute(parts[i][1]))


def _serve(serve: Any, config: OperatorConfig, request: TaskRequest, operator: Operator, feed: Feed) -> TaskReport:
    """Every task unpickles an operator of its own."""
    here = world()
    report: TaskReport = serve(config, request, copy.copy(operator), feed)
    here.say(
        f"  {config.operator_name}/{request.worker}.{request.incarnation} batch {request.batch} {request.hint.value}"
        f" -> {report.status.value} {report.detail}"
        + "".join(f" backup of {backup.cells}{' full' if backup.full else ''}" for backup in report.backups)
    )
    return report


def kept_by(residents: Residents, number: int, batch: int, port: str) -> bytes:
    """See `segment.reading.kept_by`."""
    segment = world().memory.get((world().host, residents.config.operator_name, number))
    if segment is None or segment.found().incarnation != residents.incarnations[number]:
        raise SegmentError(f"Worker {number} has no state on {world().host}.")
    return segment.kept(batch, port) or b""


def _strike(faults: Any, batch: int, phase: Any, place: Any) -> None:
    world().point(f"phase {phase.value}")


class Faults:
    """A plan of failures that asks the world: for the moments of a batch that belong to the driver."""

    def fails_at(self, batch: int, phase: Any) -> bool:
        world().point(f"phase {phase.value}")
        return False

    def fails_workers(self, batch: int) -> bool:
        return False


class OneByOne:
    """Stands for a pool of threads."""

    def __init__(self, threads: int) -> None: ...

    def __enter__(self) -> OneByOne:
        return self

    def __exit__(self, *error: object) -> None: ...

    def map(self, task: Callable[[Any], Any], given: Iterable[Any]) -> Iterator[Any]:
        return map(task, given)


@contextmanager
def spark() -> Iterator[None]:
    """The engine runs in the world at work while this is open."""
    clock = SimpleNamespace(
        time=lambda: world().now, perf_counter=lambda: 0.0, monotonic=lambda: world().now, sleep=lambda seconds: None
    )
    seams: list[tuple[Any, str, Any]] = [
        (stages, "anchor", _anchor),
        (stages, "mailed", _mailed),
        (sending, "kept_by", kept_by),
        (receiving, "serve", partial(_serve, worker.serve)),
        (worker, "spark_host", lambda driver: world().host),
        (worker, "SegmentRoot", MemoryRoot),
        (worker, "SegmentAddress", MemoryAddress),
        (worker, "inject_failure", _strike),
        (group, "slots_by_host", lambda sc: dict(world().slots)),
        (group, "find_survivors", lambda sc, *, hosts, **_: census(list(hosts))),
        (group, "time", clock),
        (engine, "driver_host", lambda sc: "driver"),
        (engine, "time", clock),
        (reading, "ThreadPoolExecutor", OneByOne),
        (node, "_check_picklable", lambda name, operator: None),
    ]
    with ExitStack() as stack:
        for owner, name, value in seams:
            stack.enter_context(patch.object(owner, name, value))
        yield
