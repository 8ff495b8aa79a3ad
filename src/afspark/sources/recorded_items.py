"""Items that were recorded with the batches that they come in: the same stream, batch by batch, as often as needed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from afspark.errors import InputError
from afspark.sources.chunks import Chunk, NumberedChunk
from afspark.sources.source import LogStore, Offset, Planner, Source
from afspark.store.address_schemes import redact

#: In the metadata of the file: after how many pieces each batch ends.
_ENDS = b"afspark.batch_ends"


@dataclass(frozen=True)
class RecordedItems(Source, kind="recorded"):
    """An Arrow file that `record` has written. Its record batches are pieces, which workers share."""

    path: str

    @cached_property
    def _file(self) -> pa.RecordBatchFileReader:
        try:
            return pa.ipc.open_file(pa.memory_map(self.path))
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"The recorded items at {redact(self.path)!r} cannot be read.", path=self.path) from error

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    @property
    def ends(self) -> list[int]:
        """After how many pieces each batch ends."""
        found: list[int] = json.loads(self._file.schema.metadata[_ENDS])
        return found

    def schema(self) -> pa.Schema:
        return self._file.schema.remove_metadata()

    def planner(self, log: LogStore) -> Planner:
        return RecordedPlanner(self.ends, self)

    def rows(self, piece: int) -> int:
        """How many items a piece has."""
        return self._file.get_batch(piece).num_rows

    def read(self, chunk: NumberedChunk) -> Iterator[pa.RecordBatch]:
        yield self._file.get_batch(chunk.index).replace_schema_metadata(None)


class RecordedPlanner(Planner):
    """Every batch that Spark plans is one that was recorded, however much it may weigh."""

    def __init__(self, ends: Sequence[int], source: RecordedItems) -> None:
        # Spark pickles a planner; an open file cannot be.
        self._ends, self._source = ends, source

    def discover(self) -> Offset:
        return {"chunks": self._ends[-1] if self._ends else 0}

    def limit(self, start: Offset, end: Offset, max_bytes: int) -> Offset:
        after = next((one for one in self._ends if one > start["chunks"]), end["chunks"])
        return {"chunks": min(after, end["chunks"])}

    def chunks(self, start: Offset, end: Offset) -> list[Chunk]:
        return [
            NumberedChunk(index=at, units=rows, bytes=rows)
            for at in range(start["chunks"], end["chunks"])
            for rows in [self._source.rows(at)]
        ]


def record(path: Path, schema: pa.Schema, batches: Iterable[pa.Table], pieces: int) -> None:
    """Writes items to a file, so that each table is a batch of ``pieces`` at most; an empty one has none."""
    held: list[pa.RecordBatch] = []
    ends: list[int] = []
    for table in batches:
        rows = max(1, -(-table.num_rows // pieces))
        whole = table.combine_chunks().to_batches()
        held += [one.slice(first, rows) for one in whole for first in range(0, one.num_rows, rows)]
        ends.append(len(held))
    bare = schema.remove_metadata()
    named = bare.with_metadata({_ENDS: json.dumps(ends)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, named) as writer:
        for batch in held:
            writer.write_batch(batch.cast(bare) if batch.schema != bare else batch)
