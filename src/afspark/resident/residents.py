"""What a worker keeps for others, read where it lives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from afspark.errors import SegmentError
from afspark.numbers import Batch
from afspark.protocol.operator_config import OperatorConfig
from afspark.resident.cache import process_cache
from afspark.resident.segment import LOCK_SECONDS, Segment
from afspark.resident.segment_root import SegmentRoot
from afspark.resident.spark_host import spark_host


@dataclass(frozen=True)
class Residents:
    """The workers of an operator as the driver knows them now: a segment of an older incarnation is a dead one."""

    config: OperatorConfig
    #: by worker
    incarnations: Mapping[int, int]


def segment_of(residents: Residents, worker: int) -> Segment:
    """The worker's segment on this host; ``SegmentError`` if there is none, or one that was declared lost."""
    config = residents.config
    host = spark_host(config.driver_host)
    directory = SegmentRoot(config.segments, host).directory(config.query_id, config.operator_name, worker)
    segment = process_cache().get(directory)
    if segment is None or segment.incarnation != residents.incarnations[worker]:
        raise SegmentError(f"Worker {worker} has no state on {host}.", worker=worker, host=host)
    return segment


def kept_by(residents: Residents, worker: int, batch: Batch, port: str) -> bytes:
    """What the worker's ``batch`` keeps on ``port``; empty if nothing."""
    segment = segment_of(residents, worker)
    with segment.lock(LOCK_SECONDS):
        return segment.kept(batch, port) or b""
