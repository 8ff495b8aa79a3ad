"""Items that wait beside a secondary that sleeps: put there after each batch, taken when it has to apply the batch.

They are what the secondary would be given: read, transformed and combined. So nothing is read or sent again when it is
promoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from afspark.errors import AfsparkError, NoSpace
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, Parcel, pack_packets
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.resident.side_files import MOST_QUEUED_BYTES, queue_name, queued_in
from afspark.task.feed import Feed
from afspark.task.ingest import GivenPackets, Ingest
from afspark.task.task_context import LOCK_SECONDS
from afspark.task.task_environment import TaskEnvironment

#: What a secondary says whose queue has no room for a batch.
FULL = "full"


class QueuedItems(Ingest):
    """Items of one input that were combined before they waited; the counts are those of the items that went in."""

    def __init__(self, parcel: Parcel) -> None:
        self._parcel = parcel
        super().__init__(GivenPackets(list(parcel.packets())), ())

    def __iter__(self) -> Iterator[Packet]:
        yield from super().__iter__()
        parcel = self._parcel
        self.items, self.unplaced, self.latest = parcel.items, parcel.unplaced, parcel.latest


def put_into_queue(
    environment: TaskEnvironment,
    config: OperatorConfig,
    request: TaskRequest,
    own: Sequence[tuple[str, Ingest, int]],
    inbox: Sequence[Parcel],
) -> TaskReport:
    """Puts what a worker reads itself (name, items, bytes) and what is sent to it beside its secondary."""

    def answer(status: Status, detail: str = "", size: int = 0) -> TaskReport:
        return TaskReport(
            worker=request.worker,
            replica=request.replica,
            status=status,
            host=environment.host,
            detail=detail,
            bytes=size,
        )

    if environment.host != request.home:
        return answer(Status.MISPLACED)
    if request.consumes not in (None, {parcel.label: parcel.digest for parcel in inbox}):
        return answer(Status.BUSY, "is sent other items than its primary")
    try:
        data = _packed([_read(request.worker, *one) for one in own], inbox)
    except Exception as error:  # noqa: BLE001 - input and user code may raise anything; whoever applies it will say so
        return answer(Status.BUSY, str(error))
    home = environment.address(config, request.worker).open()
    if home is None:
        return answer(Status.MISSING, "gone")
    try:
        with home.lock(LOCK_SECONDS):
            found, files = home.found(), home.side_files
            if not found.secondary or found.incarnation != request.incarnation or found.fence > request.fence:
                return answer(Status.BUSY, "is a secondary no more")
            if found.version >= request.batch:
                return answer(Status.APPLIED, "has it")
            waiting = sum(files.size(queue_name(batch)) for batch in queued_in(files))
            if waiting + len(data) > MOST_QUEUED_BYTES:
                return answer(Status.BUSY, FULL)
            files.write(queue_name(request.batch), data)
    except NoSpace:
        return answer(Status.BUSY, FULL)
    except AfsparkError as error:
        return answer(Status.BUSY, str(error))
    return answer(Status.APPLIED, "queued", len(data))


def queued_feed(environment: TaskEnvironment, config: OperatorConfig, request: TaskRequest) -> Feed | None:
    """The items of a batch that wait beside the worker's state; None if they do not."""
    home = environment.address(config, request.worker).open()
    if home is None:
        return None
    with home.lock(LOCK_SECONDS):
        data = home.side_files.read(queue_name(request.batch))
    if data is None:
        return None
    own, inbox = _unpacked(data)
    return Feed(
        [(parcel.origin, QueuedItems(parcel)) for parcel in own],
        inbox,
        size=sum(parcel.size for parcel in own),
        order=config.input_order,
    )


def _read(worker: int, name: str, items: Ingest, size: int) -> Parcel:
    payload = pack_packets(list(items))
    return Parcel(
        origin=name,
        partition=worker,
        payload=payload,
        items=items.items,
        size=size,
        latest=items.latest,
        unplaced=items.unplaced,
    )


def _packed(own: Sequence[Parcel], inbox: Sequence[Parcel]) -> bytes:
    parcels = [parcel.to_bytes() for parcel in (*own, *inbox)]
    head = json.dumps({"own": len(own), "lengths": [len(one) for one in parcels]})
    return b"".join([head.encode(), b"\n", *parcels])


def _unpacked(data: bytes) -> tuple[list[Parcel], list[Parcel]]:
    start = data.index(b"\n") + 1
    head = json.loads(data[: start - 1])
    parcels = []
    for length in head["lengths"]:
        parcels.append(Parcel.from_bytes(data[start : start + length]))
        start += length
    return parcels[: head["own"]], parcels[head["own"] :]
