"""Sources: what a query reads, in chunks that workers share; all but pushed items can be read again."""

from afspark.runtime.sources.csvfiles import CsvFiles
from afspark.runtime.sources.labelled import Clicks, Higgs
from afspark.runtime.sources.libsvm import LibsvmFiles
from afspark.runtime.sources.packets import Packets
from afspark.runtime.sources.parquet import ParquetFiles
from afspark.runtime.sources.pcap import PcapFiles
from afspark.runtime.sources.pushed import Pushed
from afspark.runtime.sources.share import share
from afspark.runtime.sources.source import Chunk, LogStore, Offset, Planner, Source, source_from_json
from afspark.runtime.sources.text import TextFiles
from afspark.runtime.sources.visits import Visits
from afspark.runtime.sources.words import ZipfWords

__all__ = [
    "Chunk",
    "Clicks",
    "CsvFiles",
    "Higgs",
    "LibsvmFiles",
    "LogStore",
    "Offset",
    "Packets",
    "ParquetFiles",
    "PcapFiles",
    "Planner",
    "Pushed",
    "Source",
    "TextFiles",
    "Visits",
    "ZipfWords",
    "share",
    "source_from_json",
]
