"""The Spark jobs of a batch. Each is eager: it has run when the function returns.

A stage brings items to the workers of one operator. What a worker can read itself (its share of a source, where
keys do not matter) it reads in its own task: with nothing else to bring, a batch is a single stage. Everything
else (items by key, items of other operators, feedback, any DataFrame) is read where it is, packed into parcels and
sent over Spark's shuffle; the receiving side is zipped with the anchor, which pulls it to the workers' homes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark import RDD, SparkContext

from afspark.cluster.spark.anchors import anchor, mailed
from afspark.numbers import Batch
from afspark.protocol.fault_plan import FaultPhase
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Parcel
from afspark.protocol.reports import TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident import SegmentRoot
from afspark.resident.spark_host import spark_host
from afspark.task.fault_injection import forget_injected, inject_failure
from afspark.task.receiving import receive
from afspark.task.sending import send_chunks, send_frame, send_kept
from afspark.task.stage_inputs import Addressed, FrameInput, LaneInput, OutputInput, SourceInput, StageInput, UserCode

#: What comes to the workers in parcels.
SentInput = SourceInput | OutputInput | FrameInput


def run_stage(
    sc: SparkContext,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    inputs: Sequence[StageInput],
) -> list[TaskReport]:
    """Brings the items of all inlets to the workers, which apply them."""
    read_directly = (LaneInput,) if work.keyed else (LaneInput, SourceInput)
    direct = tuple(stage_input for stage_input in inputs if isinstance(stage_input, read_directly))
    sent = [
        _send(sc, config, work, requests, stage_input)
        for stage_input in inputs
        if not isinstance(stage_input, LaneInput) and stage_input not in direct
    ]
    homes = _homes(sc, requests)
    task = partial(receive, config, work, tuple(requests), direct)
    if not sent:
        return homes.map(_without_mail).mapPartitions(task).collect()
    items = sent[0] if len(sent) == 1 else sc.union(sent)
    if any(isinstance(stage_input, FrameInput) for stage_input in inputs):
        # A partition of a DataFrame may be empty and then sends nothing at all, so parcels are gathered first.
        inbox = items.partitionBy(config.workers, _by_number).mapPartitions(_gather)
        return homes.zip(inbox).mapPartitions(task).collect()
    mail = mailed(sc, [request.home for request in requests], items).mapPartitions(_collected)
    return mail.mapPartitions(task).collect()


def run_requests(
    sc: SparkContext, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest]
) -> list[TaskReport]:
    """Workers carry out orders that need no items."""
    return run_stage(sc, config, work, requests, ())


def inject_on_workers(
    sc: SparkContext, config: OperatorConfig, homes: Sequence[str], batch: Batch, phase: FaultPhase
) -> None:
    """The driver's part in a system failure: every worker is struck where it lives."""
    anchor(sc, homes).foreach(partial(_inject, config, batch, phase))


def _inject(config: OperatorConfig, batch: Batch, phase: FaultPhase, worker: int) -> None:
    root = SegmentRoot(config.segments, spark_host(config.driver_host))
    inject_failure(config.faults, batch, phase, root.directory(config.query_id, config.operator_name, worker))


def run_on_workers(sc: SparkContext, homes: Sequence[str], task: Callable[[int], Iterable[Any]]) -> list[Any]:
    """Runs ``task(worker)`` once per entry of ``homes``, preferably there."""
    return anchor(sc, homes).flatMap(task).collect()


def _homes(sc: SparkContext, requests: Sequence[TaskRequest]) -> RDD[int]:
    return anchor(sc, [request.home for request in requests])


# --- the sending side ---------------------------------------------------------------------------------------


def _send(
    sc: SparkContext, config: OperatorConfig, work: UserCode, requests: Sequence[TaskRequest], stage_input: SentInput
) -> RDD[Addressed]:
    now = requests[0].batch_time.now
    match stage_input:
        case SourceInput():
            return _homes(sc, requests).mapPartitions(partial(send_chunks, config, work, stage_input, now))
        case OutputInput():
            return anchor(sc, stage_input.homes).mapPartitions(partial(send_kept, config, work, stage_input, now))
        case FrameInput():
            task = partial(send_frame, config, work, stage_input.name, stage_input.transforms, now)
            return stage_input.frame.mapInArrow(task, "worker int, parcel binary").rdd.map(_addressed)


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


def release_segments(sc: SparkContext, config: OperatorConfig, homes: Sequence[str]) -> None:
    """Removes the query's segments from all hosts."""
    anchor(sc, sorted(set(homes))).foreach(partial(_release, config))


def _release(config: OperatorConfig, _: int) -> None:
    root = SegmentRoot(config.segments, spark_host(config.driver_host))
    forget_injected(root.directory(config.query_id, config.operator_name, 0).parent)
    root.release(config.query_id)
