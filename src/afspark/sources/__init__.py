"""Sources: what a query reads, in chunks that workers share; all but pushed items can be read again."""

from afspark.sources.csv_files import CsvFiles
from afspark.sources.generated_market import MarketEvents
from afspark.sources.generated_packets import Packets
from afspark.sources.generated_plugs import SmartPlugs
from afspark.sources.generated_posts import Posts
from afspark.sources.generated_visits import Visits
from afspark.sources.generated_words import ZipfWords
from afspark.sources.json_files import JsonFiles
from afspark.sources.labelled_rows import Clicks, Higgs
from afspark.sources.libsvm_files import LibsvmFiles
from afspark.sources.parquet_files import ParquetFiles
from afspark.sources.pcap_files import PcapFiles
from afspark.sources.pushed_source import Pushed
from afspark.sources.recorded_items import RecordedItems
from afspark.sources.share import share
from afspark.sources.source import Chunk, LogStore, Offset, Planner, Source, source_from_json
from afspark.sources.text_files import TextFiles

__all__ = [
    "Chunk",
    "Clicks",
    "CsvFiles",
    "Higgs",
    "JsonFiles",
    "LibsvmFiles",
    "LogStore",
    "MarketEvents",
    "Offset",
    "Packets",
    "ParquetFiles",
    "PcapFiles",
    "Planner",
    "Posts",
    "Pushed",
    "RecordedItems",
    "SmartPlugs",
    "Source",
    "TextFiles",
    "Visits",
    "ZipfWords",
    "share",
    "source_from_json",
]
