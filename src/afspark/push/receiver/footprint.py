"""What a batch from the wire keeps in memory: the message it came in, rather than what its columns point at."""

from __future__ import annotations

import pyarrow as pa


def footprint(batch: pa.RecordBatch) -> int:
    """Bytes that stay as long as the batch does.

    Columns are views of one message, which may hold more than they show; and they may show the same bytes more than
    once, which is copied when the batch is written out. The larger of both counts.
    """
    shown = 0
    kept: dict[int, int] = {}
    for column in batch.columns:
        for buffer in column.buffers():
            if buffer is None:
                continue
            shown += buffer.size
            whole = buffer
            while (parent := whole.parent) is not None:
                whole = parent
            kept[whole.address] = max(whole.size, kept.get(whole.address, 0))
    return max(shown, sum(kept.values()))


def was_compressed(batch: pa.RecordBatch) -> bool:
    """Whether a batch from the wire came compressed: then its buffers are no views of the message."""
    buffers = (buffer for column in batch.columns for buffer in column.buffers())
    return any(buffer is not None and buffer.size and buffer.parent is None for buffer in buffers)
