"""The receiving side of a stage: parcels, and what a worker reads itself, go into its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from afspark.errors import SegmentError
from afspark.protocol.operator_config import OperatorConfig
from afspark.protocol.parcels import Packet, Parcel
from afspark.protocol.reports import Status, TaskReport
from afspark.protocol.requests import TaskRequest
from afspark.sources import Chunk, Pushed
from afspark.task.feed import Feed
from afspark.task.ingest import ChunkPackets, Ingest
from afspark.task.intake import Intake
from afspark.task.lane_feed import LaneFeed
from afspark.task.sending import bytes_of
from afspark.task.stage_inputs import SourceInput, UserCode
from afspark.task.task_environment import TaskEnvironment
from afspark.task.worker import serve


def receive(
    environment: TaskEnvironment,
    config: OperatorConfig,
    work: UserCode,
    requests: Sequence[TaskRequest],
    direct: Sequence[SourceInput],
    mail: Iterator[tuple[int, list[Parcel]]],
) -> Iterator[TaskReport]:
    """The report of every worker that there is mail for, with no parcel in it where nothing is sent."""
    for worker, inbox in mail:
        failures = [parcel.failure for parcel in inbox if parcel.failure is not None]
        if failures:
            # A sender without its state is the driver's business; everything else is the user's.
            status = Status.BUSY if isinstance(failures[0], SegmentError) else Status.FAILED
            yield TaskReport(worker=worker, status=status, host="", detail=str(failures[0]), error=failures[0])
            continue
        request = requests[worker]
        # Spark's first batch, and one that another source has asked for, may have no tick of this source.
        pushed = next(
            (
                (stage_input, chunk)
                for stage_input in direct
                if isinstance(stage_input.source, Pushed)
                for chunk in stage_input.shares[worker]
            ),
            None,
        )
        if pushed is not None:
            stage_input, chunk = pushed
            with closing(environment.open_lane(request, chunk)) as lane:
                intake = Intake(lane, seconds=chunk["seconds"], clock=environment.clock)
                feed = _lane_feed(work, request, stage_input, intake, chunk, inbox)
                yield serve(environment, config, request, work.operator, feed)
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
            for stage_input in direct
        ]
        size = sum(bytes_of(stage_input.shares[worker]) for stage_input in direct)
        yield serve(environment, config, request, work.operator, Feed(own, inbox, size=size))


def _lane_feed(
    work: UserCode,
    request: TaskRequest,
    stage_input: SourceInput,
    intake: Intake,
    chunk: Chunk,
    inbox: Sequence[Parcel],
) -> LaneFeed:
    """The lane of a worker, for the length of a tick."""

    def ingest(packets: Iterable[Packet]) -> Ingest:
        return work.ingest(packets, stage_input.transforms, request.batch_time.now)

    return LaneFeed(stage_input.name, intake, ingest, start=chunk["positions"], inbox=inbox)
