"""The receiving side of a stage: parcels, and what a worker reads itself, go into its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from pyspark import cloudpickle

from afspark.errors import SegmentError
from afspark.protocol.lane_ticket import LaneTicket
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, Parcel
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.task.feed import Feed
from afspark.task.ingest import ChunkPackets, GivenPackets, Ingest
from afspark.task.intake import Intake
from afspark.task.lane_feed import LaneFeed
from afspark.task.queueing import put_into_queue, queued_feed
from afspark.task.remote_lane import open_lane
from afspark.task.sending import bytes_of
from afspark.task.stage_inputs import DirectInput, LaneInput, SourceInput, UserCode
from afspark.task.task_environment import TaskEnvironment
from afspark.task.worker import serve


def receive(
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    direct: Sequence[DirectInput],
    mail: Iterator[tuple[int, list[Parcel]]],
) -> Iterator[TaskReport]:
    """The report of every worker that there is mail for, with no parcel in it where nothing is sent."""
    # Mail is addressed to workers; each of them has one replica that applies it.
    by_worker = {request.worker: request for request in requests}
    for worker, inbox in mail:
        request = by_worker[worker]
        failures = [parcel.failure for parcel in inbox if parcel.failure is not None]
        if failures:
            # A sender without its state is the driver's business; everything else is the user's.
            status = Status.BUSY if isinstance(failures[0], SegmentError) else Status.FAILED
            yield TaskReport(
                worker=worker,
                replica=request.replica,
                status=status,
                host="",
                detail=str(failures[0]),
                error=failures[0],
            )
            continue
        # Spark's first batch, and one that another source has asked for, may have no tick of this source.
        lanes = [one for one in direct if isinstance(one, LaneInput) and worker in one.tickets]
        if lanes:
            ticket = lanes[0].tickets[worker]
            with closing(open_lane(request, ticket)) as lane:
                intake = Intake(
                    lane,
                    seconds=ticket.seconds,
                    clock=environment.clock,
                    released=ticket.released,
                    until=ticket.until,
                    gone=ticket.gone,
                    order=ticket.order,
                )
                feed = _lane_feed(work, request, lanes[0], intake, ticket, inbox)
                yield serve(environment, config, request, work.operator, feed)
            continue
        files = [one for one in direct if isinstance(one, SourceInput)]
        if request.queued:
            yield from _serve_queued(environment, config, work, request)
            continue
        own = [
            (
                stage_input.name,
                work.ingest(
                    ChunkPackets(stage_input.source, stage_input.shares[worker]),
                    stage_input.transforms,
                    request.batch_time.now,
                ),
            )
            for stage_input in files
        ]
        sizes = [bytes_of(stage_input.shares[worker]) for stage_input in files]
        if request.queues:
            waiting = [(name, items, size) for (name, items), size in zip(own, sizes, strict=True)]
            yield put_into_queue(environment, config, request, waiting, inbox)
            continue
        yield serve(
            environment, config, request, work.operator, Feed(own, inbox, size=sum(sizes), order=config.input_order)
        )


def _serve_queued(
    environment: TaskEnvironment, config: OperatorConfig, work: UserCode, request: TaskRequest
) -> Iterator[TaskReport]:
    """What comes of batches whose items wait beside the state, one after the other, up to one that is not applied.

    Nothing is applied where no items wait. They are gone if the state has the batch, which the driver may not know:
    then the worker answers what it answered then.
    """
    for one in (request, *request.following):
        feed = queued_feed(environment, config, one)
        asked = one if feed is not None else replace(one, apply=False)
        operator = work.operator if one is request else cloudpickle.loads(config.pristine)
        report = serve(environment, config, asked, operator, feed or Feed())
        yield replace(report, batch=one.batch)
        if report.status is not Status.APPLIED or report.lacks_batch:
            return


def _lane_feed(
    work: UserCode,
    request: TaskRequest,
    stage_input: LaneInput,
    intake: Intake,
    ticket: LaneTicket,
    inbox: Sequence[Parcel],
) -> LaneFeed:
    """The lane of a worker, for the length of a tick."""

    def ingest(packets: Iterable[Packet]) -> Ingest:
        return work.ingest(GivenPackets(packets), stage_input.transforms, request.batch_time.now)

    return LaneFeed(stage_input.name, intake, ingest, start=ticket.positions, inbox=inbox)
