"""Whether a batch from the wire can be worked with: its buffers must not lead kernels out of bounds.

Arrow's own full validation is used, except for plain text and binary columns, where it takes ten times as long as
looking at all offsets at once and at whether there is anything but ASCII.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from afspark.push.errors import UnsoundBatch

_TEXT = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
_HIGH_BITS = np.uint64(0x8080808080808080)


def check_batch(batch: pa.RecordBatch, producer: str) -> None:
    """`UnsoundBatch` if offsets, lengths, dictionary indices or UTF-8 of any column are not valid."""
    try:
        batch.validate()
        for column in batch.columns:
            if column.type not in _TEXT or not _is_plain(column):
                column.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise UnsoundBatch(
            f"A batch of producer {producer} is damaged: {str(error).splitlines()[0]}.", producer=producer
        ) from error


def _is_plain(column: pa.Array) -> bool:
    """Whether offsets ascend within the data and all of it is ASCII or free of encoding."""
    if not len(column):
        return True
    _, offset_buffer, data = column.buffers()
    width = _TEXT[column.type]
    offsets = np.frombuffer(offset_buffer, width)[column.offset : column.offset + len(column) + 1]
    size = 0 if data is None else data.size
    if offsets[0] < 0 or offsets[-1] > size or not (offsets[1:] >= offsets[:-1]).all():
        return False
    if not size or column.type in {pa.binary(), pa.large_binary()}:
        return True
    # Beyond the last whole word the buffer is looked at byte by byte.
    text = np.frombuffer(data, np.uint8)
    whole = size & ~7
    words = text[:whole].view(np.uint64)
    return not (np.bitwise_or.reduce(words, initial=np.uint64(0)) & _HIGH_BITS or (text[whole:] & 0x80).any())
