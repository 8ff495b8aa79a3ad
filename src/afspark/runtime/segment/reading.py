"""What a worker keeps for others, read where it lives."""

from __future__ import annotations

from dataclasses import dataclass

from afspark.errors import SegmentError
from afspark.runtime.host import spark_host
from afspark.runtime.orders import Mission
from afspark.runtime.segment.cache import process_cache
from afspark.runtime.segment.root import SegmentRoot
from afspark.runtime.segment.segment import LOCK_SECONDS, Segment


@dataclass(frozen=True)
class Residents:
    """The workers of an operator as the driver knows them now: a segment of an older incarnation is a dead one."""

    mission: Mission
    incarnations: tuple[int, ...]


def segment_of(residents: Residents, worker: int) -> Segment:
    """The worker's segment on this host; ``SegmentError`` if there is none, or one that was declared lost."""
    mission = residents.mission
    host = spark_host(mission.driver_host)
    directory = SegmentRoot(mission.segments, host).directory(mission.query_id, mission.operator_name, worker)
    segment = process_cache().get(directory)
    if segment is None or segment.incarnation != residents.incarnations[worker]:
        raise SegmentError(f"Worker {worker} has no state on {host}.", worker=worker, host=host)
    return segment


def kept_by(residents: Residents, worker: int, batch: int, port: str) -> bytes:
    """What the worker's ``batch`` keeps on ``port``; empty if nothing."""
    segment = segment_of(residents, worker)
    with segment.lock(LOCK_SECONDS):
        return segment.kept(batch, port) or b""
