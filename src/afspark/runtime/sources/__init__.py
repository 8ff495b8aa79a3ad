"""Replayable sources: what a query reads, in chunks that workers share."""

from afspark.runtime.sources.packets import Packets
from afspark.runtime.sources.parquet import ParquetFiles
from afspark.runtime.sources.share import share
from afspark.runtime.sources.source import Chunk, LogStore, Offset, Planner, Source, source_from_json
from afspark.runtime.sources.text import TextFiles
from afspark.runtime.sources.words import ZipfWords

__all__ = [
    "Chunk",
    "LogStore",
    "Offset",
    "Packets",
    "ParquetFiles",
    "Planner",
    "Source",
    "TextFiles",
    "ZipfWords",
    "share",
    "source_from_json",
]
