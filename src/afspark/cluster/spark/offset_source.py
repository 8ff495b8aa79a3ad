"""The Structured Streaming source behind file and generator streams.

Spark asks it for offsets and keeps them in its checkpoint; no row ever comes out of it. The batch loop reads
the same offsets and lets the workers fetch their shares themselves, as Arrow, in Python. Spark runs this
class in a process of its own, so everything it needs travels in the options.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from afspark.sources import source_from_json
from afspark.store import open_store
from afspark.store.identity import attached
from afspark.store.naming import FOLDER

FORMAT = "afspark-plan"


class PlanReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets of a chunked source, at most ``batch_bytes`` a batch."""

    def __init__(self, options: dict[str, str]) -> None:
        # A user's own kind of source is known once its module is imported.
        with suppress(ImportError):
            import_module(options["module"])
        source = source_from_json(json.loads(options["source"]))
        checkpoint = attached(open_store(options["checkpoint"]), float(options["wait_seconds"]))
        self.planner = source.planner(checkpoint.below(FOLDER).below(options["folder"]))
        self.batch_bytes = int(options["batch_bytes"])
        self.target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        return self.planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.planner.discover()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self.planner.latest(start, self.target, self.batch_bytes)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter(())

    def commit(self, end: dict[str, Any]) -> None:
        pass


class OffsetSource(DataSource):
    """Registers as ``afspark-plan``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "worker int"

    def streamReader(self, schema: Any) -> PlanReader:
        return PlanReader(dict(self.options))
