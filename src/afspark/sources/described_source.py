"""A source of which nothing is known but what a checkpoint says: it can be compared, and not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.file_source import InputAwaited
from afspark.sources.source import LogStore, Planner, Source


@dataclass(frozen=True, eq=False)
class DescribedSource(Source):
    """Stands for a source of a checkpoint in a pipeline that is looked at and never run."""

    described: Mapping[str, Any]

    def settings(self) -> dict[str, Any]:
        return dict(self.described)

    def schema(self) -> pa.Schema:
        raise InputAwaited("A checkpoint does not say which columns its input has.")

    def planner(self, log: LogStore) -> Planner:
        raise self._refused()

    def read(self, chunk: Any) -> Iterator[pa.RecordBatch]:
        raise self._refused()

    def _refused(self) -> UsageError:
        return UsageError("A source that a checkpoint describes cannot be read.")
