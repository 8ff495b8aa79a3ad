"""The Spark jobs of a batch. Each is eager: it has run when the function returns.

====================  ==================================================================
fast path             one stage: a worker reads its share and updates its own state
exchange              two stages: shares are read and combined, parcels go to their owners
DataFrame             the same exchange behind ``mapInArrow`` over any Spark DataFrame
====================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext, TaskContext
from pyspark.sql import DataFrame

from afspark.model.operator import Operator, Transform
from afspark.runtime.exchange import Parcel, decode, pack, parcels
from afspark.runtime.faults import Phase, forget_strikes, strike
from afspark.runtime.host import spark_host
from afspark.runtime.ingest import Ingest, read_chunks
from afspark.runtime.orders import Mission, Order, Report, Status
from afspark.runtime.placement import anchor
from afspark.runtime.segment import SegmentRoot
from afspark.runtime.sources import Chunk, Source
from afspark.runtime.worker import Feed, as_failure, serve


@dataclass(frozen=True)
class Work:
    """The user's code, as it travels to the tasks."""

    operator: Operator
    transforms: tuple[Transform, ...]
    source: Source | None
    keyed: bool


Addressed = tuple[int, Parcel]


def run_fast_path(
    sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], shares: Sequence[Sequence[Chunk]]
) -> list[Report]:
    """Workers read their shares and update local state, without any exchange."""
    task = partial(_fast_path, mission, work, tuple(orders), tuple(shares))
    return _homes(sc, orders).mapPartitions(task).collect()


def run_exchange(
    sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], shares: Sequence[Sequence[Chunk]]
) -> list[Report]:
    """Shares are read by every worker's host and sent to the workers that own the keys."""
    items = _homes(sc, orders).mapPartitions(partial(_send_chunks, mission, work, tuple(shares)))
    return _deliver(sc, mission, work, orders, items)


def run_frame(
    sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], frame: DataFrame
) -> list[Report]:
    """A batch of any Spark streaming DataFrame."""
    sent = frame.mapInArrow(partial(_send_frame, mission, work), "worker int, parcel binary")
    return _deliver(sc, mission, work, orders, sent.rdd.map(_address))


def run_orders(sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order]) -> list[Report]:
    """Workers carry out orders that need no items."""
    task = partial(_without_items, mission, work, tuple(orders))
    return _homes(sc, orders).mapPartitions(task).collect()


def strike_workers(sc: SparkContext, mission: Mission, homes: Sequence[str], batch: int, phase: Phase) -> None:
    """The driver's part in a system failure: every worker is struck where it lives."""
    anchor(sc, homes).foreach(partial(_strike, mission, batch, phase))


def _strike(mission: Mission, batch: int, phase: Phase, worker: int) -> None:
    root = SegmentRoot(mission.segments, spark_host(mission.driver_host))
    strike(mission.faults, batch, phase, root.directory(mission.query_id, mission.operator_name, worker))


def _without_items(mission: Mission, work: Work, orders: Sequence[Order], workers: Iterator[int]) -> Iterator[Report]:
    for worker in workers:
        yield serve(mission, orders[worker], work.operator, Feed(()))


def run_on_workers(sc: SparkContext, homes: Sequence[str], task: Callable[[int], Iterable[Any]]) -> list[Any]:
    """Runs ``task(worker)`` once per entry of ``homes``, preferably there."""
    return anchor(sc, homes).flatMap(task).collect()


def _homes(sc: SparkContext, orders: Sequence[Order]) -> RDD[int]:
    return anchor(sc, [order.home for order in orders])


def _fast_path(
    mission: Mission,
    work: Work,
    orders: Sequence[Order],
    shares: Sequence[Sequence[Chunk]],
    workers: Iterator[int],
) -> Iterator[Report]:
    for worker in workers:
        assert work.source is not None
        chunks = shares[worker]
        items = Ingest(read_chunks(work.source, chunks), work.transforms, work.operator.combiner())
        yield serve(mission, orders[worker], work.operator, Feed(items, size=_weight(chunks)))


def _send_chunks(
    mission: Mission, work: Work, shares: Sequence[Sequence[Chunk]], workers: Iterator[int]
) -> Iterator[Addressed]:
    for worker in workers:
        assert work.source is not None
        batches = read_chunks(work.source, shares[worker])
        yield from _send(mission, work, batches, partition=worker, size=_weight(shares[worker]))


def _send_frame(mission: Mission, work: Work, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    sized = _Sized(batches)
    sent = list(_send(mission, work, sized, partition=context.partitionId(), size=lambda: sized.bytes))
    yield pa.record_batch(
        {
            "worker": pa.array([worker for worker, _ in sent], pa.int32()),
            "parcel": pa.array([parcel.to_bytes() for _, parcel in sent], pa.binary()),
        }
    )


def _address(row: Any) -> Addressed:
    return row[0], Parcel.from_bytes(bytes(row[1]))


def _send(
    mission: Mission,
    work: Work,
    batches: Iterable[pa.RecordBatch],
    *,
    partition: int,
    size: int | Callable[[], int],
) -> list[Addressed]:
    items = Ingest(batches, work.transforms, work.operator.combiner())
    try:
        packed = pack(items, key=work.operator.key if work.keyed else (), partition=partition, workers=mission.workers)
    except Exception as error:  # noqa: BLE001 - input and user code may raise anything; it must not be retried blindly
        failure = as_failure(error, work.operator)
        return [(worker, Parcel(partition, 0, 0, "", b"", failure)) for worker in range(mission.workers)]
    total = size() if callable(size) else size
    return parcels(packed, partition=partition, items=items.items, size=total)


def _deliver(
    sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], items: RDD[Addressed]
) -> list[Report]:
    # Zipping with the anchor is what gives the shuffled partitions a preferred host: one element a side.
    inbox = items.partitionBy(mission.workers, _by_number).mapPartitions(_gather)
    task = partial(_receive, mission, work, tuple(orders))
    return _homes(sc, orders).zip(inbox).mapPartitions(task).collect()


def _by_number(worker: int) -> int:
    return worker


def _gather(addressed: Iterable[Addressed]) -> Iterator[list[Parcel]]:
    yield sorted((parcel for _, parcel in addressed), key=lambda parcel: parcel.partition)


def _receive(
    mission: Mission, work: Work, orders: Sequence[Order], mail: Iterator[tuple[int, list[Parcel]]]
) -> Iterator[Report]:
    for worker, inbox in mail:
        failed = [parcel.failure for parcel in inbox if parcel.failure is not None]
        if failed:
            yield Report(worker=worker, status=Status.FAILED, host="", error=failed[0])
            continue
        feed = Feed(
            _Opened(inbox),
            size=sum(parcel.size for parcel in inbox),
            consumed={str(parcel.partition): parcel.digest for parcel in inbox},
        )
        yield serve(mission, orders[worker], work.operator, feed)


class _Opened:
    """The items of all parcels in the order of their map partitions, which fixes the order of float sums."""

    def __init__(self, inbox: Sequence[Parcel]) -> None:
        self.inbox = inbox
        self.items = sum(parcel.items for parcel in inbox)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for parcel in self.inbox:
            yield from decode(parcel.payload)


class _Sized:
    """Counts the bytes of the batches that pass."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.batches = batches
        self.bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self.batches:
            self.bytes += batch.nbytes
            yield batch


def _weight(chunks: Sequence[Chunk]) -> int:
    return sum(int(chunk["bytes"]) for chunk in chunks)


def release_segments(sc: SparkContext, mission: Mission, homes: Sequence[str]) -> None:
    """Removes the query's segments from all hosts."""
    anchor(sc, sorted(set(homes))).foreach(partial(_release, mission))


def _release(mission: Mission, _: int) -> None:
    root = SegmentRoot(mission.segments, spark_host(mission.driver_host))
    forget_strikes(root.directory(mission.query_id, mission.operator_name, 0).parent)
    root.release(mission.query_id)
