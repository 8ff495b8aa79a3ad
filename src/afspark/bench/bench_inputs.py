"""Input files for contests with native Spark: made once from the generators, one file per batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from afspark.sources import Packets, Source, ZipfWords

BATCH_BYTES = 40_000_000


def text_files(folder: Path, batches: int) -> Path:
    """``batches`` text files of 40 MB."""
    target = folder / f"text-{batches}"
    if not target.exists():
        unfinished = folder / f".text-{batches}"
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            blocks = (row.as_buffer() for batch in read_all(ZipfWords(BATCH_BYTES, seed=number)) for row in batch[0])
            (unfinished / f"{number:04d}.txt").write_bytes(b"".join(blocks))
        unfinished.rename(target)
    return target


def packet_files(folder: Path, batches: int, rows: int) -> Path:
    """``batches`` Parquet files with ``rows`` packets each, as Spark would write them."""
    target = folder / f"packets-{batches}-{rows}"
    if not target.exists():
        unfinished = folder / f".packets-{batches}-{rows}"
        unfinished.mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            table = pa.Table.from_batches(list(read_all(Packets(rows, seed=number))))
            pq.write_table(table, unfinished / f"{number:04d}.parquet", row_group_size=1 << 18, compression="snappy")
        unfinished.rename(target)
    return target


def read_all(source: Source) -> list[pa.RecordBatch]:
    planner = source.planner(None)  # type: ignore[arg-type]
    chunks = planner.chunks(planner.initial(), planner.discover())
    return [batch for chunk in chunks for batch in source.read(chunk)]
