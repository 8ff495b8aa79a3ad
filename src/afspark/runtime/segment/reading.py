"""What a worker keeps for others, read where it lives."""

from __future__ import annotations

from afspark.errors import SegmentError
from afspark.runtime.host import spark_host
from afspark.runtime.orders import Mission
from afspark.runtime.segment.cache import process_cache
from afspark.runtime.segment.root import SegmentRoot
from afspark.runtime.segment.segment import LOCK_SECONDS, Segment


def segment_of(mission: Mission, worker: int) -> Segment:
    """The worker's segment on this host; ``SegmentError`` if there is none."""
    host = spark_host(mission.driver_host)
    directory = SegmentRoot(mission.segments, host).directory(mission.query_id, mission.operator_name, worker)
    segment = process_cache().get(directory)
    if segment is None:
        raise SegmentError(f"Worker {worker} has no state on {host}.", worker=worker, host=host)
    return segment


def kept_by(mission: Mission, worker: int, batch: int, port: str) -> bytes:
    """What the worker's ``batch`` keeps on ``port``; empty if nothing."""
    segment = segment_of(mission, worker)
    with segment.lock(LOCK_SECONDS):
        return segment.kept(batch, port) or b""
