"""The fused front of a pipeline: read, transform and combine a share of a batch in one pass, as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from afspark.model.operator import Combiner, Transform
from afspark.runtime.sources import Chunk, Source


def read_chunks(source: Source, chunks: Sequence[Chunk]) -> Iterator[pa.RecordBatch]:
    """The Arrow batches of a share, in order."""
    for chunk in chunks:
        yield from source.read(chunk)


class Ingest:
    """Iterates over what reaches the operator; ``items`` counts what went in, before combining."""

    def __init__(
        self, batches: Iterable[pa.RecordBatch], transforms: Sequence[Transform], combiner: Combiner | None
    ) -> None:
        self._batches = batches
        self._transforms = transforms
        self._combiner = combiner
        self.items = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._transformed():
            if self._combiner is None:
                self.items += batch.num_rows
                yield batch
            else:
                self._combiner.add(batch)
        if self._combiner is not None:
            combined = self._combiner.finish()
            self.items = self._combiner.items
            if combined is not None and combined.num_rows:
                yield combined

    def _transformed(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            result: Any = batch
            for transform in self._transforms:
                result = transform(result)
                if result is None:
                    break
            if result is not None and result.num_rows:
                yield result
