"""Resident state of one worker in files that outlive its processes."""

from afspark.runtime.segment.address import SegmentAddress
from afspark.runtime.segment.cache import SegmentCache, process_cache
from afspark.runtime.segment.columns import MappedColumns
from afspark.runtime.segment.header import examine
from afspark.runtime.segment.root import SegmentRoot, Survivor
from afspark.runtime.segment.segment import Segment

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
