"""A producer for measurements: ``python -m afspark.bench.pushing ADDRESS --kind lines --seconds 8``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from afspark.push.producer.producer import Producer

#: 20 bytes a row
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("kind", pa.int32())])
LINES = pa.schema([pa.field("value", pa.string(), nullable=False)])
KEYS = 10_000
BATCH_ROWS = 65_536
#: making batches must not be what is measured, so a few are sent over and over
BATCHES = 8


@dataclass(frozen=True)
class Kind:
    """Items of one shape. ``rows``: of a message, so that it has about 1.5 MB."""

    schema: pa.Schema
    make: Callable[[int, int], Iterator[pa.RecordBatch]]
    rows: int = BATCH_ROWS


def _keys(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    draw = np.random.default_rng(1)
    for _ in range(count):
        keys = np.minimum(draw.zipf(1.2, rows), KEYS)
        columns = [keys, draw.integers(0, 1 << 40, rows), draw.integers(0, 8, rows, dtype=np.int32)]
        yield pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA)


def _lines(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    """A line of text, as books have them, in each row."""
    from afspark.bench.bench_inputs import read_all
    from afspark.model.kernels.lines import all_lines
    from afspark.sources import ZipfWords

    blocks = pa.chunked_array([batch.column(0) for batch in read_all(ZipfWords(100 * rows * count))])
    lines = all_lines(blocks.combine_chunks()).cast(pa.string())
    for start in range(0, rows * count, rows):
        yield pa.record_batch([pa.concat_arrays([lines.slice(start, rows)])], schema=LINES)


def _packets(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    from afspark.bench.bench_inputs import read_all
    from afspark.sources import Packets

    yield from _cut(read_all(Packets(rows * count)), rows)


def _visits(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    """The packets of two traces in turn, with a column that tells them apart."""
    from afspark.bench.bench_inputs import read_all
    from afspark.sources import Visits

    sides = [list(_cut(read_all(Visits(rows * count // 2, stream=side)), rows // 2)) for side in (0, 1)]
    for left, right in zip(*sides, strict=True):
        both = pa.Table.from_batches([left, right]).combine_chunks()
        marks = pa.array(np.repeat(np.array([0, 1], np.int8), (left.num_rows, right.num_rows)))
        yield both.append_column(visit_schema().field("side"), marks).to_batches()[0]


def _clicks(count: int, rows: int) -> Iterator[pa.RecordBatch]:
    from afspark.bench.bench_inputs import read_all
    from afspark.sources import Clicks

    yield from _cut(read_all(Clicks(rows * count)), rows)


def _cut(batches: list[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows).combine_chunks().to_batches()[0]


def visit_schema() -> pa.Schema:
    from afspark.sources.generated_visits import VISITS

    return VISITS.append(pa.field("side", pa.int8(), nullable=False))


def kind_of(name: str) -> Kind:
    from afspark.sources.generated_packets import PACKETS
    from afspark.sources.labelled_rows import CLICKS

    kinds = {
        "keys": Kind(SCHEMA, _keys),
        "lines": Kind(LINES, _lines, rows=24_576),
        "packets": Kind(PACKETS, _packets),
        "visits": Kind(visit_schema(), _visits),
        "clicks": Kind(CLICKS, _clicks, rows=32_768),
    }
    return kinds[name]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m afspark.bench.pushing", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--name", default="bench")
    parser.add_argument("--kind", choices=("keys", "lines", "packets", "visits", "clicks"), default="keys")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=float, default=0.0, help="rows a second; 0: as fast as they are taken")
    parser.add_argument("--rows", type=int, default=0, help="rows a batch; 0: about 1.5 MB")
    options = parser.parse_args()
    kind = kind_of(options.kind)
    rows = options.rows or kind.rows
    made = list(kind.make(BATCHES, rows))
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with Producer(options.address, options.name, kind.schema, batch_rows=rows) as producer:
        producer.send(made[0])
        producer.flush(60.0)
        started, sent = time.monotonic(), 0
        while time.monotonic() - started < options.seconds and not over.is_set():
            producer.send(made[sent % len(made)])
            sent += 1
            if options.rate:
                time.sleep(max(0.0, sent * rows / options.rate - (time.monotonic() - started)))
        took = time.monotonic() - started
        counters = producer.counters
        producer.flush(120.0)
    print(
        json.dumps(
            {
                "rows": sent * rows,
                "seconds": took,
                "latency_p50": counters.latency_p50,
                "latency_p99": counters.latency_p99,
                "blocked_seconds": counters.blocked_seconds,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
