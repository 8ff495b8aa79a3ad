"""Items that a test gives, batch by batch; they live in the process of the test alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from afspark.errors import UsageError
from afspark.sources.chunks import Chunk, NumberedChunk
from afspark.sources.source import LogStore, Offset, Planner, Source

#: A batch is read in so many pieces at most, which workers share.
PIECES = 16

#: The items of one batch, by column or as Arrow; None: no items.
Items: TypeAlias = "pa.RecordBatch | Mapping[str, Sequence[Any]] | None"


@dataclass(frozen=True)
class GivenItems(Source, kind="testing"):
    """The items that a test gives, in pieces that workers share."""

    number: int
    columns: pa.Schema
    pieces: list[pa.RecordBatch] = field(default_factory=list, compare=False)

    def add(self, given: Items) -> None:
        """The items of the next batch."""
        if given is None:
            return
        try:
            batch = (
                given if isinstance(given, pa.RecordBatch) else pa.RecordBatch.from_pydict(dict(given), self.columns)
            )
        except (KeyError, pa.ArrowException) as error:
            raise self._refused(given, f" ({str(error).splitlines()[0]})") from None
        if batch.schema != self.columns or set(self._names(given)) - set(self.columns.names):
            raise self._refused(given)
        rows = -(-batch.num_rows // PIECES)
        self.pieces.extend(batch.slice(first, rows) for first in range(0, batch.num_rows, max(1, rows)))

    def _names(self, given: pa.RecordBatch | Mapping[str, Sequence[Any]]) -> list[str]:
        return given.schema.names if isinstance(given, pa.RecordBatch) else list(given)

    def _refused(self, given: pa.RecordBatch | Mapping[str, Sequence[Any]], why: str = "") -> UsageError:
        return UsageError(
            f"The items, with the columns {', '.join(self._names(given))}, do not fit the schema{why}.",
            remedy=f"Give the columns {', '.join(map(str, self.columns))}.",
        )

    def schema(self) -> pa.Schema:
        return self.columns

    def planner(self, log: LogStore) -> Planner:
        return GivenItemsPlanner(self.pieces)

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        yield self.pieces[chunk.index]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "number": self.number}


class GivenItemsPlanner(Planner):
    """Every piece is a chunk."""

    def __init__(self, pieces: Sequence[pa.RecordBatch]) -> None:
        self._pieces = pieces

    def discover(self) -> Offset:
        return {"chunks": len(self._pieces)}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        return end

    def chunks(self, start: Offset, end: Offset) -> list[Chunk]:
        return [NumberedChunk(index=at, bytes=self._pieces[at].nbytes) for at in range(start["chunks"], end["chunks"])]
