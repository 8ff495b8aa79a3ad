"""The Spark jobs of a batch. Each is eager: it has run when the function returns.

A stage brings items to the workers of one operator. What a worker can read itself (its share of a source, where
keys do not matter) it reads in its own task: with nothing else to bring, a batch is a single stage. Everything
else (items by key, items of other operators, feedback, any DataFrame) is read where it is, packed into parcels and
sent over Spark's shuffle; the receiving side is zipped with the anchor, which pulls it to the workers' homes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext, TaskContext
from pyspark.sql import DataFrame

from afspark.errors import AfsparkError, SegmentError
from afspark.model.onbad import SKIP
from afspark.model.operator import Operator, Transform
from afspark.model.windows import Window
from afspark.runtime.baditems import as_failure, without_bad
from afspark.runtime.exchange import Packet, Parcel, address, joint_digest, open_packets, pack_bad, parcels
from afspark.runtime.faults import Phase, forget_strikes, strike
from afspark.runtime.host import spark_host
from afspark.runtime.ingest import ChunkPackets, Ingest, PassingPackets
from afspark.runtime.intake import Intake, LaneFeed
from afspark.runtime.lanes import RemoteLane, open_lane
from afspark.runtime.orders import Mission, Order, Report, Status
from afspark.runtime.placement import anchor, mailed
from afspark.runtime.segment import SegmentRoot
from afspark.runtime.segment.reading import Residents, kept_by
from afspark.runtime.shift import ALL, Feed, feedback_for, items_for
from afspark.runtime.sources import Chunk, Pushed, Source
from afspark.runtime.worker import serve


@dataclass(frozen=True)
class Work:
    """The user's code, as it travels to the tasks."""

    operator: Operator
    keyed: bool = False
    window: Window | None = None

    def ingest(self, packets: Iterable[Packet], transforms: Sequence[Transform], now: float) -> Ingest:
        return Ingest(packets, transforms, self.operator.combiner, self.window, now)

    @property
    def key(self) -> tuple[str, ...]:
        return self.operator.key if self.keyed else ()


@dataclass(frozen=True)
class SourceInlet:
    """Shares of a source that workers read themselves: one list of chunks per worker."""

    name: str
    source: Source
    transforms: tuple[Transform, ...]
    shares: Sequence[Sequence[Chunk]]


@dataclass(frozen=True)
class OutputInlet:
    """What the workers of another operator keep for this one: items of this batch, or feedback of the last."""

    residents: Residents
    homes: tuple[str, ...]
    batch: int
    receiver: str
    transforms: tuple[Transform, ...] = ()
    feedback: bool = False

    @property
    def name(self) -> str:
        return self.residents.mission.operator_name

    @property
    def ports(self) -> tuple[str, ...]:
        return (feedback_for(self.receiver),) if self.feedback else (ALL, items_for(self.receiver))


@dataclass(frozen=True)
class FrameInlet:
    """A batch of any Spark streaming DataFrame."""

    name: str
    frame: DataFrame
    transforms: tuple[Transform, ...]


Inlet = SourceInlet | OutputInlet | FrameInlet
Addressed = tuple[int, Parcel]


def run_stage(
    sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], inlets: Sequence[Inlet]
) -> list[Report]:
    """Brings the items of all inlets to the workers, which apply them."""
    direct = tuple(inlet for inlet in inlets if isinstance(inlet, SourceInlet) and not work.keyed)
    sent = [_send(sc, mission, work, orders, inlet) for inlet in inlets if inlet not in direct]
    homes = _homes(sc, orders)
    task = partial(_receive, mission, work, tuple(orders), direct)
    if not sent:
        return homes.map(_without_mail).mapPartitions(task).collect()
    items = sent[0] if len(sent) == 1 else sc.union(sent)
    if any(isinstance(inlet, FrameInlet) for inlet in inlets):
        # A partition of a DataFrame may be empty and then sends nothing at all, so parcels are gathered first.
        inbox = items.partitionBy(mission.workers, _by_number).mapPartitions(_gather)
        return homes.zip(inbox).mapPartitions(task).collect()
    mail = mailed(sc, [order.home for order in orders], items).mapPartitions(_collected)
    return mail.mapPartitions(task).collect()


def run_orders(sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order]) -> list[Report]:
    """Workers carry out orders that need no items."""
    return run_stage(sc, mission, work, orders, ())


def strike_workers(sc: SparkContext, mission: Mission, homes: Sequence[str], batch: int, phase: Phase) -> None:
    """The driver's part in a system failure: every worker is struck where it lives."""
    anchor(sc, homes).foreach(partial(_strike, mission, batch, phase))


def _strike(mission: Mission, batch: int, phase: Phase, worker: int) -> None:
    root = SegmentRoot(mission.segments, spark_host(mission.driver_host))
    strike(mission.faults, batch, phase, root.directory(mission.query_id, mission.operator_name, worker))


def run_on_workers(sc: SparkContext, homes: Sequence[str], task: Callable[[int], Iterable[Any]]) -> list[Any]:
    """Runs ``task(worker)`` once per entry of ``homes``, preferably there."""
    return anchor(sc, homes).flatMap(task).collect()


def _homes(sc: SparkContext, orders: Sequence[Order]) -> RDD[int]:
    return anchor(sc, [order.home for order in orders])


# --- the sending side ---------------------------------------------------------------------------------------


def _send(sc: SparkContext, mission: Mission, work: Work, orders: Sequence[Order], inlet: Inlet) -> RDD[Addressed]:
    now = orders[0].calendar.now
    match inlet:
        case SourceInlet():
            return _homes(sc, orders).mapPartitions(partial(_send_chunks, mission, work, inlet, now))
        case OutputInlet():
            return anchor(sc, inlet.homes).mapPartitions(partial(_send_kept, mission, work, inlet, now))
        case FrameInlet():
            task = partial(_send_frame, mission, work, inlet.name, inlet.transforms, now)
            return inlet.frame.mapInArrow(task, "worker int, parcel binary").rdd.map(_addressed)


def _send_chunks(
    mission: Mission, work: Work, inlet: SourceInlet, now: float, workers: Iterator[int]
) -> Iterator[Addressed]:
    for worker in workers:
        chunks = inlet.shares[worker]
        items = work.ingest(ChunkPackets(inlet.source, chunks), inlet.transforms, now)
        first = Parcel(origin=inlet.name, partition=worker)
        yield from _packed(mission, work, items, first, partial(_weight, chunks))


def _send_frame(
    mission: Mission,
    work: Work,
    name: str,
    transforms: Sequence[Transform],
    now: float,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    sized = _Sized(batches)
    items = work.ingest(PassingPackets(sized, whole=mission.bad.choice(name) == SKIP), transforms, now)
    first = Parcel(origin=name, partition=context.partitionId())
    sent = _packed(mission, work, items, first, lambda: sized.bytes)
    yield pa.record_batch(
        {
            "worker": pa.array([worker for worker, _ in sent], pa.int32()),
            "parcel": pa.array([parcel.to_bytes() for _, parcel in sent], pa.binary()),
        }
    )


def _send_kept(
    mission: Mission, work: Work, inlet: OutputInlet, now: float, workers: Iterator[int]
) -> Iterator[Addressed]:
    for worker in workers:
        first = Parcel(origin=inlet.name, partition=worker, feedback=inlet.feedback)
        try:
            found = [kept_by(inlet.residents, worker, inlet.batch, port) for port in inlet.ports]
        except AfsparkError as error:
            yield from _failed(mission, first, error)
            continue
        packets = sorted((packet for data in found for packet in open_packets(data)), key=lambda packet: packet.step)
        items = Ingest(packets, inlet.transforms) if inlet.feedback else work.ingest(packets, inlet.transforms, now)
        yield from _packed(mission, work, items, replace(first, digest=joint_digest(found)))


def _packed(
    mission: Mission, work: Work, items: Ingest, first: Parcel, size: Callable[[], int] = lambda: 0
) -> list[Addressed]:
    feed = Feed([(first.origin, items)])

    def addressed() -> list[bytes]:
        packets = (packet for _, packet in feed.rest() if isinstance(packet, Packet))
        return address(
            packets, key=work.key, partition=first.partition, workers=mission.workers, everywhere=first.feedback
        )

    try:
        payloads, bad = without_bad(feed, addressed, _nothing_to_undo, mission.bad, work.operator.key)
    except Exception as error:  # noqa: BLE001 - input and user code may raise anything; it must not be retried blindly
        return _failed(mission, first, as_failure(error, work.operator))
    counted = replace(first, items=items.items, size=size(), latest=items.latest, unplaced=items.unplaced)
    if bad.items:
        counted = replace(counted, bad=pack_bad(bad.within(mission.bad.most_bytes)))
    return parcels(payloads, counted)


def _nothing_to_undo() -> None:
    """Steps and combiners before an exchange leave nothing behind."""


def _failed(mission: Mission, first: Parcel, failure: AfsparkError) -> list[Addressed]:
    return [(worker, replace(first, failure=failure)) for worker in range(mission.workers)]


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


def _receive(
    mission: Mission,
    work: Work,
    orders: Sequence[Order],
    direct: Sequence[SourceInlet],
    mail: Iterator[tuple[int, list[Parcel]]],
) -> Iterator[Report]:
    for worker, inbox in mail:
        failures = [parcel.failure for parcel in inbox if parcel.failure is not None]
        if failures:
            # A sender without its state is the driver's business; everything else is the user's.
            status = Status.BUSY if isinstance(failures[0], SegmentError) else Status.FAILED
            yield Report(worker=worker, status=status, host="", detail=str(failures[0]), error=failures[0])
            continue
        order = orders[worker]
        # Spark's first batch, and one that another source has asked for, may have no tick of this source.
        pushed = next(
            ((inlet, chunk) for inlet in direct if isinstance(inlet.source, Pushed) for chunk in inlet.shares[worker]),
            None,
        )
        if pushed is not None:
            inlet, chunk = pushed
            with closing(open_lane(order, chunk)) as lane:
                yield serve(mission, order, work.operator, _lane_feed(work, order, inlet, lane, chunk, inbox))
            continue
        own = [
            (
                inlet.name,
                work.ingest(ChunkPackets(inlet.source, inlet.shares[worker]), inlet.transforms, order.calendar.now),
            )
            for inlet in direct
        ]
        size = sum(_weight(inlet.shares[worker]) for inlet in direct)
        yield serve(mission, order, work.operator, Feed(own, inbox, size=size))


def _lane_feed(
    work: Work, order: Order, inlet: SourceInlet, lane: RemoteLane, chunk: Chunk, inbox: Sequence[Parcel]
) -> LaneFeed:
    """The lane of a worker, for the length of a tick."""
    intake = Intake(lane, seconds=chunk["seconds"])

    def ingest(packets: Iterable[Packet]) -> Ingest:
        return work.ingest(packets, inlet.transforms, order.calendar.now)

    return LaneFeed(inlet.name, intake, ingest, start=chunk["positions"], inbox=inbox)


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
