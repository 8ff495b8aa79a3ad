"""The Spark jobs of a batch. Each is eager: it has run when the function returns.

A stage brings items to the workers of one operator. What a worker can read itself (its share of a source, where
keys do not matter) it reads in its own task: with nothing else to bring, a batch is a single stage. Everything
else (items by key, items of other operators, feedback, any DataFrame) is read where it is, packed into parcels and
sent over Spark's shuffle; the receiving side is zipped with the anchor, which pulls it to the workers' homes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext, TaskContext

from afspark.cluster.cluster import HostTask, ReceivingTask
from afspark.cluster.spark.anchors import anchor, mailed
from afspark.model.operator import Transform
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Parcel
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest, homes_of, readers_of
from afspark.task.receiving import receive
from afspark.task.sending import send_batches, send_chunks, send_kept
from afspark.task.stage_inputs import (
    Addressed,
    DirectInput,
    FrameInput,
    OutputInput,
    SentInput,
    SourceInput,
    StageInput,
    UserCode,
    split_inputs,
)
from afspark.task.task_environment import TaskEnvironment


def run_stage(
    sc: SparkContext,
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    inputs: Sequence[StageInput],
) -> list[TaskReport]:
    """The reports of the workers, which were brought the items of all inputs. See `Cluster.run_stage`."""
    direct, carried = split_inputs(inputs, keyed=work.keyed)
    sent = [_send(sc, environment, config, work, requests, stage_input) for stage_input in carried]
    places = _places(requests)
    homes = anchor(sc, places.homes)
    task = partial(_receive, environment, config, work, tuple(requests), direct, places)
    if not sent:
        return homes.map(_without_mail).mapPartitions(task).collect()
    items = sent[0] if len(sent) == 1 else sc.union(sent)
    if len(places.workers) < config.workers:
        items = items.flatMap(places.of)
    if any(stage_input.may_send_nothing for stage_input in carried):
        # Parcels can only be zipped with the anchor if there is one of every partition, so they are gathered first.
        inbox = items.partitionBy(len(places.workers), _by_number).mapPartitions(_gather)
        return homes.zip(inbox).mapPartitions(task).collect()
    mail = mailed(sc, places.homes, items).mapPartitions(_collected)
    return mail.mapPartitions(task).collect()


def move(
    sc: SparkContext,
    environment: TaskEnvironment,
    sources: Mapping[int, str],
    take: HostTask,
    targets: Mapping[int, str],
    put: ReceivingTask,
) -> list[Any]:
    """What comes of it when contents go from some hosts to others. See `Cluster.move`."""
    sent = anchor(sc, sources).flatMap(partial(take, environment))
    inbox = sent.partitionBy(len(targets), _by_number).mapPartitions(_contents)
    return anchor(sc, targets).zip(inbox).flatMap(partial(_put, environment, put)).collect()


def _contents(addressed: Iterable[tuple[int, Any]]) -> Iterator[list[Any]]:
    yield [content for _, content in addressed]


def _put(environment: TaskEnvironment, task: ReceivingTask, mail: tuple[int, list[Any]]) -> Iterable[Any]:
    return task(environment, *mail)


@dataclass(frozen=True)
class _Places:
    """The workers of a stage: the place of each in it is its partition."""

    workers: tuple[int, ...]
    hosts: tuple[str, ...]

    @property
    def homes(self) -> dict[int, str]:
        return dict(enumerate(self.hosts))

    def of(self, addressed: Addressed) -> Iterator[Addressed]:
        """A parcel by its worker's place; none for a worker that has no part in the stage."""
        worker, parcel = addressed
        if worker in self.workers:
            yield self.workers.index(worker), parcel


def _places(requests: Sequence[TaskRequest]) -> _Places:
    homes = sorted(homes_of(requests).items())
    return _Places(tuple(worker for worker, _ in homes), tuple(home for _, home in homes))


def _receive(
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    direct: Sequence[DirectInput],
    places: _Places,
    mail: Iterator[tuple[int, list[Parcel]]],
) -> Iterator[TaskReport]:
    addressed = ((places.workers[place], inbox) for place, inbox in mail)
    return receive(environment, config, work, requests, direct, addressed)


# --- the sending side ---------------------------------------------------------------------------------------


def _send(
    sc: SparkContext,
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    stage_input: SentInput,
) -> RDD[Addressed]:
    now = requests[0].batch_time.now
    match stage_input:
        case SourceInput():
            readers = readers_of(stage_input.shares, requests)
            return anchor(sc, readers).mapPartitions(partial(send_chunks, config, work, stage_input, now))
        case OutputInput():
            task = partial(send_kept, environment, config, work, stage_input, now)
            return anchor(sc, stage_input.homes).mapPartitions(task)
        case FrameInput():
            send = partial(_send_partition, config, work, stage_input.name, stage_input.transforms, now)
            sent: RDD[Addressed] = stage_input.frame.mapInArrow(send, "worker int, parcel binary").rdd.map(_addressed)
            return sent


def _send_partition(
    config: OperatorConfig,
    work: UserCode,
    name: str,
    transforms: Sequence[Transform],
    now: float,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    sent = send_batches(config, work, name, transforms, now, batches, context.partitionId())
    yield pa.record_batch(
        {
            "worker": pa.array([worker for worker, _ in sent], pa.int32()),
            "parcel": pa.array([parcel.to_bytes() for _, parcel in sent], pa.binary()),
        }
    )


def _addressed(row: Any) -> Addressed:
    return row[0], Parcel.from_bytes(bytes(row[1]))


# --- the receiving side -------------------------------------------------------------------------------------


def _by_number(worker: int) -> int:
    return worker


def _gather(addressed: Iterable[Addressed]) -> Iterator[list[Parcel]]:
    yield [parcel for _, parcel in addressed]


def _collected(mail: Iterable[tuple[int, Addressed]]) -> Iterator[tuple[int, list[Parcel]]]:
    """All mail of a partition, which is of one worker."""
    received = list(mail)
    if received:
        yield received[0][0], [parcel for _, (_, parcel) in received]


def _without_mail(worker: int) -> tuple[int, list[Parcel]]:
    return worker, []
