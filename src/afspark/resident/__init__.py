"""Resident state of one worker in files that outlive its processes."""

from afspark.resident.address import SegmentAddress
from afspark.resident.cache import SegmentCache, process_cache
from afspark.resident.header import examine
from afspark.resident.mapped_columns import MappedColumns
from afspark.resident.segment import Segment
from afspark.resident.segment_root import SegmentRoot
from afspark.resident.survivor import Survivor

__all__ = [
    "MappedColumns",
    "Segment",
    "SegmentAddress",
    "SegmentCache",
    "SegmentRoot",
    "Survivor",
    "examine",
    "process_cache",
]
