"""The exact recount, spread over Spark's task slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import SparkContext

from afspark.protocol.parcels import decode, encode
from afspark.report.recount import merge
from afspark.sources import Chunk, share

Recount = Callable[[Iterable[Chunk]], pa.Table]


def recount(sc: SparkContext, count: Recount, chunks: Sequence[Chunk], keys: Sequence[str]) -> pa.Table:
    """``count`` over all chunks; the driver holds one table of distinct keys for each task slot."""
    shares = [part for part in share(chunks, sc.defaultParallelism) if part]
    if not shares:
        return count([])

    def each(parts: Iterable[list[Chunk]]) -> Iterator[bytes]:
        for part in parts:
            yield encode(count(part).combine_chunks().to_batches())

    found = sc.parallelize(shares, len(shares)).mapPartitions(each).collect()
    tables = [pa.Table.from_batches(batches) for batches in map(decode, found) if batches]
    return merge(tables, keys) if tables else count([])
