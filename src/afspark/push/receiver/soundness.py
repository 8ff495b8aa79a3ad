"""Whether a batch from the wire can be worked with: its buffers must not lead kernels out of bounds.

Arrow's own full validation is used, except for plain text and binary columns, where it takes ten times as long as
looking at all offsets at once and at whether there is anything but ASCII.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from afspark.errors import first_line
from afspark.push.wire.push_errors import UnsoundBatch

_TEXT = {pa.string(): np.int32, pa.binary(): np.int32, pa.large_string(): np.int64, pa.large_binary(): np.int64}
_HIGH_BITS = np.uint64(0x8080808080808080)


def check_batch(batch: pa.RecordBatch, producer: str) -> None:
    """`UnsoundBatch` if offsets, lengths, counts of nulls, dictionary indices or UTF-8 of any column are not valid.

    Nor may there be nulls where the schema allows none: workers rely on it.
    """
    try:
        batch.validate()
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if column.type not in _TEXT or not _is_plain(column):
                column.validate(full=True)
            if _has_forbidden_null(field, column):
                raise ValueError(f"column {field.name!r} must not hold nulls")
    except (pa.ArrowException, ValueError) as error:
        raise UnsoundBatch(
            f"A batch of producer {producer} is damaged: {first_line(error)}.", producer=producer
        ) from error


def _is_plain(column: pa.Array) -> bool:
    """Whether offsets ascend within the data and all of it is ASCII or free of encoding."""
    if not len(column):
        return True
    validity, offset_buffer, data = column.buffers()
    if validity is not None:
        # The sender counted the nulls; bits are counted again.
        bits = pa.Array.from_buffers(pa.bool_(), len(column), [validity, validity], column.null_count, column.offset)
        bits.validate(full=True)
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


def _has_forbidden_null(field: pa.Field, column: pa.Array) -> bool:
    if not field.nullable and column.null_count:
        return True
    if not len(column):
        # Nobody has checked its offsets, and Arrow ends the process if they are wrong.
        return False
    kind = field.type
    if pa.types.is_struct(kind):
        children = (column.drop_null() if column.null_count else column).flatten()
        return any(_has_forbidden_null(child, values) for child, values in zip(kind, children, strict=True))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # Flattened, it is without what lies under nulls.
        return _has_forbidden_null(kind.value_field, column.flatten())
    return False
