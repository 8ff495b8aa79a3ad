"""A producer for measurements: ``python -m afspark.bench.pushing ADDRESS --seconds 8 --rate 5e6``."""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import pyarrow as pa

from afspark.push.producer import Producer

#: 20 bytes a row
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("kind", pa.int32())])
KEYS = 10_000
BATCH_ROWS = 65_536


def batches(count: int = 8) -> list[pa.RecordBatch]:
    """A few batches of skewed keys, sent over and over: making them must not be what is measured."""
    draw = np.random.default_rng(1)
    made = []
    for _ in range(count):
        keys = np.minimum(draw.zipf(1.2, BATCH_ROWS), KEYS)
        columns = [keys, draw.integers(0, 1 << 40, BATCH_ROWS), draw.integers(0, 8, BATCH_ROWS, dtype=np.int32)]
        made.append(pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m afspark.bench.pushing", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--name", default="bench")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rate", type=float, default=0.0, help="rows a second; 0: as fast as they are taken")
    parser.add_argument("--rows", type=int, default=BATCH_ROWS, help="rows a batch")
    options = parser.parse_args()
    made = [batch.slice(0, options.rows) for batch in batches()]
    with Producer(options.address, options.name, SCHEMA, batch_rows=options.rows) as producer:
        producer.send(made[0])
        producer.flush(60.0)
        started, sent = time.monotonic(), 0
        while time.monotonic() - started < options.seconds:
            producer.send(made[sent % len(made)])
            sent += 1
            if options.rate:
                time.sleep(max(0.0, sent * options.rows / options.rate - (time.monotonic() - started)))
        took = time.monotonic() - started
        counters = producer.counters
        producer.flush(120.0)
    print(
        json.dumps(
            {
                "rows": sent * options.rows,
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
