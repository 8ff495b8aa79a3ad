"""Record batches for tests."""

from __future__ import annotations

import pyarrow as pa


def numbered(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})
